/** The columns of the compression details: those of the report, the trend and the finding. */

import type { DetailFigures, DetailItem, DetailRow, TotalsRow } from "../../api/schema";
import { Sparkline } from "../../charts/Sparkline";
import type { GridColumn } from "../../components/grid/column";
import { FindingBadge, FindingMark, StatusBadge } from "../../components/Status";
import type { Kind } from "../../components/Value";
import type { Term } from "../../format/definitions";
import { bytes, exactBytes } from "../../format/bytes";
import { factor } from "../../format/numbers";
import { minute, second } from "../../format/time";
import type { Grouping } from "./view";

function column(id: Exclude<keyof (DetailRow & DetailFigures), "retried_new_bytes" | "first_full" | "locked">, kind: Kind, width: number): GridColumn<DetailItem> {
  return { id, term: id, kind, width, sort: id, value: (row) => row[id] };
}

const trendWords = (values: readonly (number | null)[]) =>
  values.map((value) => (value === null ? "–" : factor(value))).join(" → ");

/** What has become of the restore point; when and by whom it was deleted in the tooltip. */
function PointFate({ row }: { row: DetailItem }) {
  if (row.point === "none") return <span className="muted">–</span>;
  const when = row.deleted === "" ? "at a time that is not known" : minute(row.deleted);
  const by = row.deleted_by === "" ? "" : ` by ${row.deleted_by}`;
  return (
    <span className={row.point === "deleted" ? "muted" : ""} data-exact={row.point === "deleted" ? `Deleted ${when}${by}` : undefined}>
      {row.point}
      {row.locked && ", locked"}
    </span>
  );
}

/** In display order. The first one stays in view. */
export const DETAIL_COLUMNS: readonly GridColumn<DetailItem>[] = [
  {
    ...column("vm", "text", 140),
    render: (row) => (
      <>
        <span className="grid-name">{row.vm}</span>
        {row.finding !== null && <FindingMark finding={row.finding} />}
      </>
    ),
  },
  column("disk", "text", 80),
  column("job", "text", 92),
  { ...column("started", "time", 134), exact: (row) => `${second(row.started)} local time, ${row.started}` },
  column("bytes", "bytes", 100),
  column("new_bytes", "bytes", 90),
  column("post_lc", "bytes", 106),
  column("global_factor", "factor", 88),
  column("local_factor", "factor", 76),
  column("bytes/post_lc", "factor", 116),
  {
    id: "trend",
    term: "trend",
    kind: "text",
    width: 118,
    sort: null,
    value: (row) => trendWords(row.trend),
    render: (row) => <Sparkline values={row.trend} />,
  },
  {
    id: "finding",
    term: "finding",
    kind: "text",
    width: 146,
    sort: null,
    value: (row) => row.finding?.text ?? "",
    render: (row) => (row.finding === null ? null : <FindingBadge finding={row.finding} />),
  },
  column("namespace", "text", 112),
  { ...column("status", "text", 98), render: (row) => <StatusBadge status={row.status} /> },
  column("reduction_pct", "percent", 100),
  column("seconds", "seconds", 104),
  { ...column("finished", "time", 138), exact: (row) => (row.finished === "" ? "" : `${second(row.finished)} local time, ${row.finished}`) },
  column("virtual_bytes", "bytes", 94),
  column("read_bytes", "bytes", 94),
  column("unchanged_bytes", "bytes", 108),
  column("dup_bytes", "bytes", 100),
  column("meta_bytes", "bytes", 100),
  column("wire_bytes", "bytes", 90),
  column("chunks", "count", 92),
  column("new_chunks", "count", 112),
  column("mb_per_s", "rate", 94),
  column("run", "text", 250),
  column("backup", "text", 250),
  column("error", "text", 320),
  column("retried_post_lc", "bytes", 100),
  { id: "first_full", term: "first_full", kind: "text", width: 90, sort: "first_full", value: (row) => (row.first_full ? "yes" : "no") },
  column("level", "count", 80),
  column("host", "text", 120),
  column("agent", "text", 90),
  column("reading_ms", "count", 110),
  column("compressing_ms", "count", 130),
  column("waiting_ms", "count", 110),
  { ...column("point", "text", 120), render: (row) => <PointFate row={row} /> },
  { id: "locked", term: "is_locked", kind: "text", width: 80, sort: "locked", value: (row) => (row.locked ? "yes" : "no") },
  column("deleted", "time", 138),
  column("deleted_by", "text", 260),
];

/** The columns of the report, which a file can hold; the others are drawn from several runs. */
export const REPORT_COLUMNS: readonly string[] = DETAIL_COLUMNS.map(({ id }) => id).filter((id) => id !== "trend" && id !== "finding");

/** Shown by default. */
const FIRST_CHOICE: readonly string[] = [
  "vm", "disk", "job", "started", "bytes", "new_bytes", "post_lc", "global_factor", "local_factor", "bytes/post_lc",
  "trend", "finding", "status", "point", "reduction_pct", "seconds",
];

/** Whether each column is shown by default; the namespace only where there are several. */
export function defaultVisibility(severalNamespaces: boolean): Record<string, boolean> {
  return Object.fromEntries(
    DETAIL_COLUMNS.map(({ id }) => [id, FIRST_CHOICE.includes(id) || (id === "namespace" && severalNamespaces)]),
  );
}

type Sum = Exclude<keyof TotalsRow, "trend" | "used">;

function sum(id: Sum & Term, kind: Kind, width: number, sort: string | null = id): GridColumn<TotalsRow> {
  return { id, term: id, kind, width, sort, value: (row) => row[id] };
}

const SUMS: readonly GridColumn<TotalsRow>[] = [
  sum("rows", "count", 92),
  sum("bytes", "bytes", 100),
  sum("new_bytes", "bytes", 92),
  sum("post_lc", "bytes", 106),
  sum("global_factor", "factor", 88),
  sum("local_factor", "factor", 80),
  sum("bytes/post_lc", "factor", 116),
  {
    id: "trend",
    term: "trend",
    kind: "text",
    width: 120,
    sort: null,
    value: (row) => trendWords(row.trend),
    render: (row) => <Sparkline values={row.trend} />,
  },
  sum("failed", "count", 78),
  sum("reduction_pct", "percent", 104),
  sum("meta_bytes", "bytes", 104),
  sum("wire_bytes", "bytes", 92),
  sum("finished", "time", 138),
];

/** What it takes now, beside what its runs wrote. */
const USED: GridColumn<TotalsRow> = {
  id: "used",
  term: "used_now",
  kind: "bytes",
  width: 118,
  sort: null,
  value: (row) => row.used?.used_bytes ?? null,
  render: (row) => (row.used === null ? <span className="muted">–</span> : `${row.used.is_complete ? "" : "≥ "}${bytes(row.used.used_bytes)}`),
  exact: (row) =>
    row.used === null
      ? "Not counted by a reclaim yet"
      : `${row.used.is_complete ? "" : "At least "}${exactBytes(row.used.used_bytes)}; does not include what was written or deleted since the last reclaim on ${minute(row.used.at)}`,
};

const name = (id: Sum & Term, width: number): GridColumn<TotalsRow> => ({
  ...sum(id, "text", width),
  render: (row) => <span className="grid-name">{row[id]}</span>,
});

/** What names a group, then its sums. */
export const GROUP_COLUMNS: Record<Grouping, readonly GridColumn<TotalsRow>[]> = {
  job: [name("job", 170), sum("namespace", "text", 130), USED, ...SUMS],
  vm: [name("vm", 170), sum("namespace", "text", 130), USED, ...SUMS],
  disk: [name("disk", 150), sum("vm", "text", 150), sum("namespace", "text", 130), ...SUMS],
  run: [name("run", 250), sum("job", "text", 130), sum("namespace", "text", 130), sum("started", "time", 148), ...SUMS],
};
