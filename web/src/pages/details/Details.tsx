/** Compression details: what every run of every disk really cost. The main page of the product. */

import { useCallback, useMemo } from "react";

import { source, useNamespaces } from "../../api/queries";
import type { DetailItem, TotalsRow } from "../../api/schema";
import { WindowTable } from "../../components/grid/WindowTable";
import { useParams } from "../../components/location";
import { useColumnChoice } from "./choice";
import { DETAIL_COLUMNS, GROUP_COLUMNS } from "./columns";
import { Drawer } from "./Drawer";
import { Findings, isPlain } from "./Findings";
import { Nothing } from "./Nothing";
import { Filters } from "./Filters";
import { Sums } from "./Sums";
import { Toolbar } from "./Toolbar";
import { filterOf, groupLabel, orderOf, parseView, toParams, type Grouping, type View } from "./view";

const ALL_SHOWN: Record<string, boolean> = {};

export default function Details() {
  const [params, change] = useParams();
  const text = params.toString();
  const view = useMemo(() => parseView(new URLSearchParams(text)), [text]);
  const onChange = useCallback((changes: Partial<View>, replace = true) => change(toParams(changes), replace), [change]);
  const several = (useNamespaces().data?.items.length ?? 1) > 1;
  const choice = useColumnChoice(several);
  const open = useCallback((row: DetailItem) => onChange({ row: row.id }, false), [onChange]);
  const drill = useCallback((row: TotalsRow) => onChange({ ...within(row, view.by), by: "" }, false), [onChange, view.by]);
  const rows = useMemo(() => source("details", "/details", { ...filterOf(view), sort: orderOf(view.sort) }), [view]);
  const groups = useMemo(() => source("groups", "/details/totals", { ...filterOf(view), by: view.by, sort: view.gsort }), [view]);
  const empty = <Nothing view={view} onChange={onChange} />;

  return (
    <div className="page page-details">
      <h1>Compression details</h1>
      <Filters view={view} onChange={onChange} />
      <Findings view={view} />
      <Sums view={view} />
      <Toolbar view={view} onChange={(changes) => onChange(changes, changes.by === undefined)} choice={choice} />
      {view.by === "" ? (
        <WindowTable<DetailItem>
          label="Disk runs"
          source={rows}
          columns={DETAIL_COLUMNS}
          visibility={choice.visibility}
          sort={view.sort}
          onSort={(sort) => onChange({ sort })}
          rowId={rowId}
          rowClass={rowClass}
          onOpen={open}
          empty={empty}
        />
      ) : (
        <WindowTable<TotalsRow>
          key={view.by}
          label={`Totals by ${groupLabel(view.by)}`}
          source={groups}
          columns={GROUP_COLUMNS[view.by]}
          visibility={ALL_SHOWN}
          sort={view.gsort}
          onSort={(gsort) => onChange({ gsort })}
          rowId={groupId}
          rowClass={groupClass}
          onOpen={drill}
          empty={empty}
        />
      )}
      {view.row !== "" && <Drawer key={view.row} id={view.row} onClose={() => onChange({ row: "" })} />}
    </div>
  );
}

const rowId = (row: DetailItem) => row.id;
const rowClass = (row: DetailItem) => (row.finding === null || isPlain(row.finding.kind) ? "" : row.finding.kind === "failed" ? "row-failed" : "row-flagged");
const groupId = (row: TotalsRow) => [row.namespace, row.job, row.vm, row.disk, row.run].join("\u0000");
const groupClass = (row: TotalsRow) => (row.failed > 0 ? "row-flagged" : "");

/** The filter that leaves just the rows of a group. */
function within(row: TotalsRow, by: Grouping | ""): Partial<View> {
  const { namespace, job, vm, disk, run } = row;
  if (by === "job") return { namespace, job };
  if (by === "vm") return { namespace, vm };
  if (by === "disk") return { namespace, vm, disk };
  return { run };
}
