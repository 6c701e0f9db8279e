/** Every VM: when it was last backed up, what it holds, what it costs. */

import { useMemo } from "react";
import { useLocation } from "wouter";

import { source, useAttribution, useVms } from "../../api/queries";
import type { AttributedGroup, Vm } from "../../api/schema";
import { may, useWho } from "../../api/session";
import { Empty } from "../../components/Feedback";
import { FirstBackup } from "../../components/FirstBackup";
import type { GridColumn } from "../../components/grid/column";
import { WindowTable } from "../../components/grid/WindowTable";
import { Icon } from "../../components/icons";
import { useNamespace, useParams, vmPath } from "../../components/location";
import { Search } from "../../components/Search";
import { Badge, StatusBadge, VerifyBadge } from "../../components/Status";
import { count, plural } from "../../format/numbers";
import { second } from "../../format/time";

const COLUMNS: readonly GridColumn<Vm>[] = [
  { id: "vm", term: "vm", kind: "text", width: 160, sort: "vm", value: (vm) => vm.vm, render: (vm) => <span className="grid-name">{vm.vm}</span> },
  {
    id: "latest",
    term: "latest",
    kind: "ago",
    width: 100,
    sort: "latest",
    value: (vm) => vm.latest?.finished,
    exact: (vm) => (vm.latest === null ? "no restore point" : `${second(vm.latest.finished)}, ${vm.latest.id}`),
  },
  {
    id: "state",
    term: "stale",
    kind: "text",
    width: 98,
    sort: null,
    value: (vm) => (vm.stale ? "stale" : "recent"),
    render: (vm) => (
      <Badge tone={vm.stale ? "warn" : "good"} icon={vm.stale ? "clock" : "check"}>
        {vm.stale ? "stale" : "recent"}
      </Badge>
    ),
  },
  {
    id: "last_status",
    term: "status",
    kind: "text",
    width: 100,
    sort: null,
    value: (vm) => vm.last_error ?? vm.last_status,
    render: (vm) => <StatusBadge status={vm.last_status} />,
  },
  {
    id: "verify",
    term: "verify",
    kind: "text",
    width: 130,
    sort: null,
    value: (vm) => (vm.verify === null ? "not verified" : vm.verify.detail),
    render: (vm) => <VerifyBadge verify={vm.verify} endToEnd={vm.end_to_end} />,
  },
  { id: "protected_bytes", term: "protected_bytes", kind: "bytes", width: 120, sort: "protected_bytes", value: (vm) => vm.protected_bytes },
  { id: "stored_bytes", term: "vm_stored_bytes", kind: "bytes", width: 110, sort: "stored_bytes", value: (vm) => vm.stored_bytes },
  { id: "total_factor", term: "total_factor", kind: "factor", width: 120, sort: "total_factor", value: (vm) => vm.total_factor },
  { id: "new_bytes_30d", term: "new_bytes_30d", kind: "bytes", width: 128, sort: "new_bytes_30d", value: (vm) => vm.new_bytes_30d },
  { id: "backups", term: "backups", kind: "count", width: 122, sort: "backups", value: (vm) => vm.backups },
  { id: "disks", term: "disks", kind: "count", width: 84, sort: null, value: (vm) => vm.disks },
  { id: "virtual_bytes", term: "virtual_bytes", kind: "bytes", width: 110, sort: null, value: (vm) => vm.virtual_bytes },
  { id: "namespace", term: "namespace", kind: "text", width: 130, sort: "namespace", value: (vm) => vm.namespace },
];

/** The largest so many; the server gives no more. */
const ATTRIBUTED_MAX = 1000;

/** What is attributed to each VM, where it has been counted. */
function attributedColumns(shares: ReadonlyMap<string, AttributedGroup>): GridColumn<Vm>[] {
  const share = (vm: Vm) => shares.get(`${vm.namespace}/${vm.vm}`);
  return [
    { id: "attributed_bytes", term: "attributed_bytes", kind: "bytes", width: 112, sort: null, value: (vm) => share(vm)?.attributed_bytes },
    { id: "exclusive_bytes", term: "exclusive_bytes", kind: "bytes", width: 104, sort: null, value: (vm) => share(vm)?.exclusive_bytes },
  ];
}

export default function Vms() {
  const namespace = useNamespace();
  const [params, change] = useParams();
  const [, navigate] = useLocation();
  const q = params.get("q") ?? "";
  const stale = params.get("stale") === "true";
  const sort = params.get("sort") ?? "vm";
  const hasVms = (useVms({ namespace, limit: 1 }).data?.total ?? 0) > 0;
  const query = { namespace, q, stale: stale ? true : null, sort };
  const total = useVms({ ...query, limit: 1 }).data?.total;
  const attribution = useAttribution({ by: "vm", namespace, limit: ATTRIBUTED_MAX }, may(useWho(), "report")).data;
  const columns = useMemo(() => {
    if (attribution == null || attribution.at === null) return COLUMNS;
    const shares = new Map(attribution.items.map((item) => [`${item.namespace}/${item.name}`, item]));
    return COLUMNS.flatMap((column) => (column.id === "stored_bytes" ? [column, ...attributedColumns(shares)] : [column]));
  }, [attribution]);
  return (
    <div className="page page-vms">
      <h1>VMs</h1>
      <div className="filters" role="search" aria-label="Filter the VMs">
        <Search value={q} placeholder="Search VMs…" onChange={(next) => change({ q: next })} />
        <button type="button" className="button" aria-pressed={stale} onClick={() => change({ stale: stale ? null : "true" })}>
          <Icon name="clock" />
          Stale only
        </button>
        <span className="muted" role="status">
          {total === undefined ? "" : plural(total, "VM")}
        </span>
        {attribution?.items.length === ATTRIBUTED_MAX && (
          <span className="muted">
            “Attributed” and “Only here” are shown for the {count(ATTRIBUTED_MAX)} VMs with the most attributed bytes.
          </span>
        )}
      </div>
      <WindowTable<Vm>
        label="VMs"
        source={source("vms", "/vms", query)}
        columns={columns}
        visibility={ALL}
        sort={sort}
        onSort={(next) => change({ sort: next === "vm" ? null : next })}
        rowId={(vm) => `${vm.namespace}/${vm.vm}`}
        rowClass={(vm) => (vm.stale ? "row-flagged" : "")}
        onOpen={(vm) => navigate(vmPath(vm.namespace, vm.vm))}
        empty={hasVms ? <Empty title="No VMs match">{stale && q === "" ? "Every VM has a recent restore point." : "Change the search."}</Empty> : <FirstBackup />}
      />
    </div>
  );
}

const ALL: Record<string, boolean> = {};
