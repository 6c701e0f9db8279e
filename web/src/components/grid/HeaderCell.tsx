/** A column's header: its name, its definition, and the order by it. */

import { definition } from "../../format/definitions";
import { Icon } from "../icons";
import { glossaryId } from "../Tooltip";
import { isNumber, type GridColumn } from "./column";

interface HeaderCellProps<T> {
  spec: GridColumn<T>;
  column: number;
  sorted: false | "asc" | "desc";
  stop: boolean;
  onSort: (() => void) | null;
}

export function HeaderCell<T>({ spec, column, sorted, stop, onSort }: HeaderCellProps<T>) {
  const order = sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : "none";
  const shared = {
    className: "grid-sort",
    tabIndex: stop ? 0 : -1,
    "data-spot": `-1.${column}`,
    "data-term": spec.term,
    "aria-describedby": glossaryId(spec.term),
  };
  const label = definition(spec.term).label;
  return (
    <th
      scope="col"
      className={`${isNumber(spec.kind) ? "number" : ""} ${sorted === false ? "" : "is-sorted"}`}
      aria-sort={onSort === null ? undefined : order}
      aria-colindex={column + 1}
    >
      {onSort === null ? (
        <span {...shared}>{label}</span>
      ) : (
        <button type="button" {...shared} onClick={onSort}>
          <span className="grid-sort-label">{label}</span>
          <Icon name={sorted === "asc" ? "up" : "down"} className={sorted === false ? "grid-arrow is-off" : "grid-arrow"} />
        </button>
      )}
    </th>
  );
}
