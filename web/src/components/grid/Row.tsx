/** One row of a windowed table, and the space of rows that are not drawn. */

import { memo } from "react";

import { exact, show } from "../Value";
import { isNumber, type GridColumn } from "./column";

interface RowProps<T> {
  /** `undefined` while it is loading: its cells are the same, so that they keep the focus. */
  row: T | undefined;
  /** Position among the rows that can be scrolled through, from 0. */
  index: number;
  /** Position of the first of those in the whole list. */
  base: number;
  columns: readonly { id: string }[];
  specs: ReadonlyMap<string, GridColumn<T>>;
  className: string;
  /** When it is drawn: what it says of the time since then is drawn again. */
  now: number;
  /** The column whose cell is the grid's tab stop; -1 for none. */
  stop: number;
  onOpen: (row: T) => void;
}

function PlainRow<T>({ row, index, base, columns, specs, className, stop, onOpen }: RowProps<T>) {
  return (
    <tr
      className={`grid-row ${row === undefined ? "grid-skeleton" : className}`}
      aria-rowindex={base + index + 2}
      data-row={index}
      onClick={row === undefined ? undefined : () => onOpen(row)}
    >
      {columns.map((column, at) => {
        const spec = specs.get(column.id);
        if (spec === undefined) return null;
        const attributes = {
          className: isNumber(spec.kind) ? "number" : "",
          tabIndex: at === stop ? 0 : -1,
          "aria-colindex": at + 1,
          "data-spot": `${index}.${at}`,
          "data-column": spec.id,
          "data-term": spec.term,
          "data-exact": row === undefined ? undefined : exactText(spec, row),
        };
        const content = row === undefined ? <span className="skeleton-line" /> : text(spec, row);
        return at === 0 ? (
          <th key={column.id} scope="row" {...attributes}>
            {content}
          </th>
        ) : (
          <td key={column.id} {...attributes}>
            {content}
          </td>
        );
      })}
    </tr>
  );
}

const text = <T,>(spec: GridColumn<T>, row: T) =>
  spec.render === undefined ? show(spec.kind, spec.value(row)) : spec.render(row);

function exactText<T>(spec: GridColumn<T>, row: T): string {
  if (spec.exact !== undefined) return spec.exact(row);
  const value = spec.value(row);
  return spec.kind === "text" ? String(value ?? "") : exact(spec.kind, value, spec.term);
}

/** Scrolling draws only the rows that came into view. */
export const Row = memo(PlainRow) as typeof PlainRow;

/** The height of rows that are not drawn. */
export function Spacer({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr aria-hidden="true" className="grid-spacer">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}
