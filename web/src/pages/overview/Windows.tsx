/** The table that Data Domain administrators know: pre-comp, post-comp and the factors per time window. */

import type { TimeWindow, TotalsWindow } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";

const NAMES: Record<TimeWindow, string> = { "24h": "24 hours", "7d": "7 days", all: "All time" };

const COLUMNS: SimpleColumn<TotalsWindow>[] = [
  { id: "window", term: "window", render: (row) => NAMES[row.window] },
  { id: "pre_comp", term: "bytes", kind: "bytes", value: (row) => row.pre_comp },
  { id: "new_bytes", term: "new_bytes", kind: "bytes", value: (row) => row.new_bytes },
  { id: "post_comp", term: "post_lc", kind: "bytes", value: (row) => row.post_comp },
  { id: "global", term: "global_factor", kind: "factor", value: (row) => row.global_factor },
  { id: "local", term: "local_factor", kind: "factor", value: (row) => row.local_factor },
  { id: "total", term: "bytes/post_lc", kind: "factor", value: (row) => row.total_factor },
  { id: "reduction", term: "reduction_pct", kind: "percent", value: (row) => row.reduction_pct },
  { id: "runs", term: "runs", kind: "count", value: (row) => row.runs },
  { id: "disks", term: "disks", kind: "count", value: (row) => row.disks },
  { id: "failed", term: "failed", kind: "count", value: (row) => row.failed },
];

export function Windows({ windows }: { windows: TotalsWindow[] }) {
  return <SimpleTable caption="Written per time window" columns={COLUMNS} rows={windows} rowKey={(row) => row.window} />;
}
