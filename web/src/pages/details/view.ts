/**
 * What the compression details show: filter, order, grouping and the open row. The address holds all of it,
 * so that a view can be linked to, and going back undoes a step.
 */

import type { QueryOf } from "../../api/client";
import type { GroupBy, RowStatus } from "../../api/schema";

export const STATUSES: readonly RowStatus[] = ["done", "failed", "aborted", "expired"];
export const GROUPS = ["job", "vm", "disk", "run"] as const satisfies readonly GroupBy[];
export type Grouping = (typeof GROUPS)[number];
export const groupLabel = (by: Grouping): string => (by === "vm" ? "VM" : by);

/** Spans the server understands, with their names. */
export const SPANS: readonly [span: string, label: string][] = [
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
  ["90d", "Last 90 days"],
];

export interface View {
  q: string;
  namespace: string;
  job: string;
  vm: string;
  disk: string;
  run: string;
  status: RowStatus[];
  /** A span (`7d`) or a local day (`2026-11-21`). */
  since: string;
  /** A local day, the last one that counts. */
  until: string;
  /** `true`: only rows whose restore point is still there. */
  existing: string;
  /** A column, `-` before it for descending. */
  sort: string;
  /** Empty: rows. */
  by: Grouping | "";
  /** Order of the groups. */
  gsort: string;
  /** Identifier of the row in the drawer. */
  row: string;
}

export const NEWEST = "-started";
export const WORST = "-post_lc";

/** The view that an address describes. What is not known is ignored. */
export function parseView(params: URLSearchParams): View {
  const text = (name: string) => params.get(name) ?? "";
  return {
    q: text("q"),
    namespace: text("namespace"),
    job: text("job"),
    vm: text("vm"),
    disk: text("disk"),
    run: text("run"),
    status: STATUSES.filter((status) => text("status").split(",").includes(status)),
    since: text("since"),
    until: text("until"),
    existing: text("existing") === "true" ? "true" : "",
    sort: text("sort") || NEWEST,
    by: GROUPS.find((by) => by === text("by")) ?? "",
    gsort: text("gsort") || WORST,
    row: text("row"),
  };
}

/** The parameters of the address for a part of a view; `null` for defaults. */
export function toParams(view: Partial<View>): Record<string, string | null> {
  const params: Record<string, string | null> = {};
  for (const [name, value] of Object.entries(view)) {
    const text = Array.isArray(value) ? value.join(",") : value;
    const usual = text === "" || (name === "sort" && text === NEWEST) || (name === "gsort" && text === WORST);
    params[name] = usual ? null : text;
  }
  return params;
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;

/** Start of a local day plus `days`, as the server takes times; spans pass as they are. */
function instant(text: string, days: number): string {
  if (!DAY.test(text)) return text;
  const [year = 0, month = 1, date = 1] = text.split("-").map(Number);
  return new Date(year, month - 1, date + days).toISOString();
}

/** The filter as the server takes it. `until` includes its whole day. */
export function filterOf(view: View) {
  return {
    namespace: view.namespace,
    job: view.job,
    vm: view.vm,
    disk: view.disk,
    run: view.run,
    q: view.q.trim(),
    status: view.status,
    finished_since: instant(view.since, 0),
    finished_until: instant(view.until, 1),
    ...(view.existing === "" ? {} : { existing: true }),
  } satisfies QueryOf<"/details">;
}

/** The order as the server takes it: oldest first is its default, and the order of `holdfast report`. */
export const orderOf = (sort: string): string => (sort === "started" ? "" : sort);

/** Whether there is a filter besides the header's namespace. */
export const isFiltered = (view: View): boolean =>
  [view.q, view.job, view.vm, view.disk, view.run, view.since, view.until, view.existing].some((text) => text !== "") ||
  view.status.length > 0;

/** No filter besides the header's namespace. */
export const UNFILTERED: Partial<View> = { q: "", job: "", vm: "", disk: "", run: "", status: [], since: "", until: "", existing: "" };
