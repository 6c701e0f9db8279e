/**
 * A short table; a wide one scrolls sideways. Its numbers are one tab stop: the arrow keys move from number to
 * number and show the definition and exact value of each.
 */

import { useRef, type KeyboardEvent, type ReactNode } from "react";

import { definition, type Term } from "../format/definitions";
import { show, tip, TermLabel, type Kind } from "./Value";

export interface SimpleColumn<Row> {
  id: string;
  term?: Term;
  /** The header when there is no term, or instead of its label. */
  header?: string;
  kind?: Kind;
  value?: (row: Row) => number | string | null | undefined;
  /** Shown in the cell instead of the formatted value. */
  render?: (row: Row) => ReactNode;
}

interface SimpleTableProps<Row> {
  caption: string;
  columns: SimpleColumn<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
}

const NUMBERS: readonly Kind[] = ["bytes", "count", "factor", "percent", "seconds", "rate", "byte_rate", "dollars"];

export function SimpleTable<Row>({ caption, columns, rows, rowKey }: SimpleTableProps<Row>) {
  const table = useRef<HTMLTableElement>(null);
  // The first number of the first row is the tab stop.
  const entry = columns.findIndex(isNumber);
  return (
    <div className="table-scroll">
      <table ref={table} className="table" onKeyDown={(event) => moveAmongCells(event, table.current)}>
        <caption className="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" className={alignment(column.kind)}>
                {column.term === undefined ? column.header : <TermLabel term={column.term}>{column.header}</TermLabel>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, rowIndex) => (
            <tr key={rowKey(row)}>
              {columns.map((column, index) => {
                const kind = column.kind ?? "text";
                const value = column.value?.(row);
                const content = column.render === undefined ? show(kind, value) : column.render(row);
                const tabIndex = rowIndex === 0 && index === entry ? 0 : -1;
                const attributes = isNumber(column) ? { ...tip(column.term, kind, value), "data-cell": "", tabIndex } : {};
                return index === 0 ? (
                  <th key={column.id} scope="row" className={alignment(column.kind)} {...attributes}>
                    {content}
                  </th>
                ) : (
                  <td key={column.id} className={alignment(column.kind)} {...attributes}>
                    {content}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Whether its cells are formatted numbers, which can take the focus. */
const isNumber = <Row,>(column: SimpleColumn<Row>): boolean =>
  column.render === undefined && column.value !== undefined && (column.kind ?? "text") !== "text";

const alignment = (kind: Kind | undefined) => (kind !== undefined && NUMBERS.includes(kind) ? "number" : "");

const STEPS: Record<string, [rows: number, cells: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** Moves the focus among the numbers; only the focused one is a tab stop. */
function moveAmongCells(event: KeyboardEvent, table: HTMLTableElement | null): void {
  const step = STEPS[event.key];
  const from = event.target instanceof HTMLTableCellElement ? event.target : null;
  if (step === undefined || from === null || table === null) return;
  const row = from.parentElement as HTMLTableRowElement;
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  let [rowIndex, cellIndex] = [rows.indexOf(row), from.cellIndex];
  for (;;) {
    rowIndex += step[0];
    cellIndex += step[1];
    const cell = rows[rowIndex]?.cells[cellIndex];
    if (cell === undefined) return;
    if (!cell.hasAttribute("data-cell")) continue;
    event.preventDefault();
    from.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
    return;
  }
}

/** The label of a term, for headers outside of tables. */
export const labelOf = (term: Term): string => definition(term).label;
