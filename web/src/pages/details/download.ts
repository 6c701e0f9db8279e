/** Links to all of the rows that are shown, with the same filters, order and columns. */

import { url } from "../../api/client";
import { REPORT_COLUMNS } from "./columns";
import { filterOf, orderOf, type View } from "./view";

export type Format = "tsv" | "csv";

/** The shown columns that a file can hold; the server keeps the report's order. Empty when that is all of them. */
export function shownColumns(visibility: Record<string, boolean>): string[] {
  const columns = REPORT_COLUMNS.filter((id) => visibility[id] !== false);
  return columns.length === REPORT_COLUMNS.length ? [] : columns;
}

export function downloadShown(view: View, visibility: Record<string, boolean>, format: Format): string {
  return url("/details", { ...filterOf(view), sort: orderOf(view.sort), columns: shownColumns(visibility), format });
}

/** The groups' sums, in the order shown. */
export function downloadGroups(view: View, format: Format): string {
  return url("/details/totals", { ...filterOf(view), by: view.by, sort: view.gsort, format });
}

/** The sums of days and weeks. */
export function downloadDays(view: View, format: Format): string {
  return url("/details/days", { ...filterOf(view), format });
}

/** All columns, oldest first: to the byte what `holdfast report --format tsv` prints with this filter. */
export function downloadReport(view: View, format: Format): string {
  return url("/details", { ...filterOf(view), format });
}
