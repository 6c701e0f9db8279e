/** One VM: its restore points as a calendar and a list, its disks, and what it costs over time. */

import { useMemo, useState } from "react";
import { Link } from "wouter";

import { useAttributedDays, useAttribution, useBackups, useDetails, useSeries, useVm } from "../../api/queries";
import type { VmDetail } from "../../api/schema";
import { may, useWho } from "../../api/session";
import { Calendar } from "../../charts/Calendar";
import { TimeChart } from "../../charts/TimeChart";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { link } from "../../components/location";
import { Stat } from "../../components/Stat";
import { AgentsBadge, Badge, StatusBadge, VerifyBadge } from "../../components/Status";
import { useToday } from "../../components/today";
import { TermLabel } from "../../components/Value";
import { bytes } from "../../format/bytes";
import { count } from "../../format/numbers";
import { localDay, longDay, minute, relative } from "../../format/time";
import { calendarDays } from "./calendarDays";
import { Disks } from "./Disks";
import { Owner } from "./Owner";
import { RestoreCommands } from "./RestoreCommands";
import { RestorePoints } from "./RestorePoints";
import { takenLines, vmLines } from "./vmLines";

/** More than the server keeps of a VM. */
const FAILURES_MAX = 2000;

/** The largest so many; the server gives no more. */
const ATTRIBUTED_MAX = 1000;

export default function Vm({ namespace, vm }: { namespace: string; vm: string }) {
  const query = useVm(namespace, vm);
  return (
    <div className="page page-vm">
      <p className="crumbs">
        <Link href="/vms">VMs</Link>
        <Icon name="next" />
        <span>{namespace}</span>
      </p>
      <h1>{vm}</h1>
      <Async query={query} height={600} lines={8}>
        {(data) => <Contents key={`${namespace}/${vm}`} vm={data} />}
      </Async>
    </div>
  );
}

function Contents({ vm }: { vm: VmDetail }) {
  const [day, setDay] = useState("");
  const today = useToday();
  const backups = useBackups({ namespace: vm.namespace, vm: vm.vm });
  const series = useSeries({ by: "vm", namespace: vm.namespace, vm: vm.vm, since: "365d" });
  const points = useMemo(() => backups.data?.pages.flatMap((page) => page.items) ?? [], [backups.data]);
  const failures = useDetails({
    namespace: vm.namespace,
    vm: vm.vm,
    status: ["failed", "aborted", "expired"],
    finished_since: "371d",
    limit: FAILURES_MAX,
  }).data?.items;
  const days = useMemo(() => calendarDays(points, failures ?? []), [points, failures]);
  // The list is in order of when backups began: of this day and those before it, some are not in it yet.
  const unloaded = backups.hasNextPage ? localDay(points.at(-1)?.started ?? "") : "";
  const shown = day === "" ? points : points.filter((point) => days.get(day)?.ids.includes(point.id));
  const latest = points[0];
  const attribution = useAttribution({ by: "vm", namespace: vm.namespace, limit: ATTRIBUTED_MAX }, may(useWho(), "report")).data;
  const share = attribution?.items.find((each) => each.namespace === vm.namespace && each.name === vm.vm);
  return (
    <>
      <p className="badges">
        <Badge tone={vm.stale ? "warn" : "good"} icon={vm.stale ? "clock" : "check"} term="stale">
          {vm.latest === null ? "no restore point" : `latest ${relative(vm.latest.finished)}`}
        </Badge>
        {vm.last_status !== "done" && <StatusBadge status={vm.last_status} />}
        <VerifyBadge verify={vm.verify} endToEnd={vm.end_to_end} />
        {vm.end_to_end && <AgentsBadge verified={vm.agent_verified} />}
        <Owner vm={vm} />
        <Link href={link("/details", { namespace: vm.namespace, vm: vm.vm })}>Compression details</Link>
      </p>
      {vm.last_error !== null && (
        <div className="note note-bad">
          <Icon name="fail" />
          <div>
            <p className="note-title">The last run failed</p>
            <p>{vm.last_error}</p>
          </div>
        </div>
      )}
      <section className="stats" aria-label="At a glance">
        <Stat term="protected_bytes" kind="bytes" value={vm.protected_bytes} />
        <Stat term="vm_stored_bytes" kind="bytes" value={vm.stored_bytes}>
          {share !== undefined && (
            <>
              {bytes(share.attributed_bytes)} <TermLabel term="attributed_bytes">attributed</TermLabel>, {bytes(share.exclusive_bytes)}{" "}
              <TermLabel term="exclusive_bytes">only here</TermLabel>, as of {minute(attribution?.at)}
            </>
          )}
          {share === undefined && attribution?.items.length === ATTRIBUTED_MAX && (
            <>
              <TermLabel term="attributed_bytes">attributed</TermLabel>: shown for the {count(ATTRIBUTED_MAX)} largest VMs only
            </>
          )}
        </Stat>
        <Stat term="total_factor" kind="factor" value={vm.total_factor} />
        <Stat term="new_bytes_30d" kind="bytes" value={vm.new_bytes_30d} />
        <Stat term="backups" kind="count" value={vm.backups}>
          {vm.first === null ? "" : `since ${minute(vm.first)}`}
        </Stat>
      </section>
      <div className="columns">
        <Card title="Restore points by day" className="wide" hint="Choose a day to see only its restore points.">
          <Calendar days={days} today={today} unloaded={unloaded} chosen={day} onChoose={setDay} />
        </Card>
        {latest !== undefined && (
          <Card title="Restore the latest" className="wide" hint={`Restore point of ${minute(latest.finished)}. After --to, name the file or device to write to.`}>
            <RestoreCommands commands={latest.restore_commands} />
          </Card>
        )}
        <Card title="Over time" className="wide">
          <Async query={series} height={260}>
            {(data) => <Charts vm={vm} data={data} />}
          </Async>
        </Card>
        <Card title="Disks" className="wide">
          <Disks disks={vm.disk_list} />
        </Card>
        <Card
          title={day === "" ? "Restore points" : `Restore points of ${longDay(day)}`}
          className="wide"
          actions={
            day === "" ? undefined : (
              <button type="button" className="button button-small" onClick={() => setDay("")}>
                Show all
              </button>
            )
          }
        >
          <Async query={backups} lines={6}>
            {() =>
              shown.length === 0 && day !== "" && day <= unloaded ? (
                <Empty title="Restore points of this day are not loaded yet" />
              ) : (
                <RestorePoints points={shown} />
              )
            }
          </Async>
          {day <= unloaded && backups.hasNextPage && (
            <button type="button" className="button" disabled={backups.isFetchingNextPage} onClick={() => void backups.fetchNextPage()}>
              {backups.isFetchingNextPage ? "Loading…" : "Load older restore points"}
            </button>
          )}
        </Card>
      </div>
    </>
  );
}

function Charts({ vm, data }: { vm: VmDetail; data: Parameters<typeof vmLines>[0] }) {
  const { days, size, added } = useMemo(() => vmLines(data), [data]);
  const taken = useAttributedDays({ by: "vm", namespace: vm.namespace, name: vm.vm }, may(useWho(), "report")).data?.days ?? [];
  return (
    <div className="charts">
      <TimeChart title="Protected and stored bytes per day" days={days} lines={size} unit="bytes" height={200} />
      <TimeChart title="New and stored bytes of each day's runs" days={days} lines={added} unit="bytes" height={200} />
      {taken.length > 1 && (
        <TimeChart title="What it took, as reclaim counted it" days={taken.map(({ day }) => day)} lines={takenLines(taken)} unit="bytes" height={200} />
      )}
    </div>
  );
}
