/**
 * A table of any length: the server sorts and filters, rows are fetched as they come into view, and the DOM
 * holds only what is on screen. A real <table> (spacer rows stand for what is not drawn), so that its
 * semantics need no repair. The header and the first column stay in view.
 */

import {
  columnPinningFeature,
  columnSizingFeature,
  columnVisibilityFeature,
  rowSortingFeature,
  tableFeatures,
  useTable,
  type ColumnDef,
  type SortingState,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Fragment, useEffect, useMemo, useRef, useState, type CSSProperties, type ReactNode } from "react";

import type { Source } from "../../api/queries";
import { AsOf, ErrorNote } from "../Feedback";
import { useNow } from "../today";
import { Blocks, ROWS_MAX } from "./Blocks";
import { isNumber, parseSort, type GridColumn } from "./column";
import { HeaderCell } from "./HeaderCell";
import { Row, Spacer } from "./Row";
import { useGridFocus } from "./useGridFocus";
import { PAGE_ROWS, useWindow } from "./useWindow";

const ROW_PX = 36;
const HEADER_PX = 40;
/** Rows drawn beyond each edge, so that a quick scroll does not show empty space. */
const OVERSCAN = 10;

const features = tableFeatures({
  columnPinningFeature,
  columnSizingFeature,
  columnVisibilityFeature,
  rowSortingFeature,
});

export interface WindowTableProps<T> {
  label: string;
  source: Source<T>;
  columns: readonly GridColumn<T>[];
  /** Columns by whether they are shown; absent ones are. */
  visibility: Record<string, boolean>;
  /** As the server takes it: a column, or `-` and a column. */
  sort: string;
  onSort: (sort: string) => void;
  rowId: (row: T) => string;
  rowClass?: (row: T) => string;
  onOpen: (row: T) => void;
  empty: ReactNode;
}

export function WindowTable<T extends object>(props: WindowTableProps<T>) {
  const { columns: specs, source, onOpen } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ first: 0, last: 0 });
  const key = JSON.stringify(source.key);
  // The first row of those that can be scrolled through; another filter or order begins with the first of all.
  const [block, setBlock] = useState({ key, base: 0 });
  const base = block.key === key ? block.base : 0;
  const list = useWindow(source, base + range.first, base + range.last);
  // A list that became shorter than where this block begins has its rows before it.
  if (base > 0 && list.total !== undefined && base >= list.total) setBlock({ key, base: 0 });
  const total = Math.max(0, Math.min(ROWS_MAX, (list.total ?? 0) - base));
  // Spans of time, such as 3 min ago, go on.
  const ticked = useNow();

  const data = useMemo(() => [...list.rows.values()], [list.rows]);
  const position = useMemo(() => new Map([...list.rows.keys()].map((index, at) => [index, at])), [list.rows]);
  const columns = useMemo(() => specs.map((spec) => definitionOf(spec)), [specs]);
  const byId = useMemo(() => new Map(specs.map((spec) => [spec.id, spec])), [specs]);
  const sorting = useMemo(() => sortingOf(specs, props.sort), [specs, props.sort]);
  const pinning = useMemo(() => ({ start: specs.slice(0, 1).map((spec) => spec.id), end: [] }), [specs]);

  const table = useTable({
    features,
    data,
    columns,
    getRowId: props.rowId,
    manualSorting: true,
    enableSortingRemoval: false,
    enableMultiSort: false,
    state: { sorting, columnVisibility: props.visibility, columnPinning: pinning },
    onSortingChange: (update) => {
      const next = (typeof update === "function" ? update(sorting) : update)[0];
      const name = next === undefined ? null : (byId.get(next.id)?.sort ?? null);
      if (next !== undefined && name !== null) props.onSort(next.desc ? `-${name}` : name);
    },
  });

  const focusRow = useRef(-1);
  const virtual = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: OVERSCAN,
    paddingStart: HEADER_PX,
    scrollPaddingStart: HEADER_PX,
    // In jsdom, and at first, no height is known.
    initialRect: { width: 800, height: 600 },
    onChange: ({ range: now, options: { count } }) => {
      // Only pages matter: a state for each scrolled row would draw everything twice.
      const first = floor(Math.max(0, (now?.startIndex ?? 0) - OVERSCAN));
      const last = floor(Math.max(0, Math.min(count - 1, (now?.endIndex ?? 0) + OVERSCAN)));
      setRange((before) => (before.first === first && before.last === last ? before : { first, last }));
    },
    rangeExtractor: ({ startIndex, endIndex, overscan, count }) => {
      const from = Math.max(0, startIndex - overscan);
      const to = Math.min(count - 1, endIndex + overscan);
      const indexes = Array.from({ length: Math.max(0, to - from + 1) }, (_, step) => from + step);
      // The row with the focus stays drawn, or the focus would be lost.
      const kept = focusRow.current;
      if (kept >= 0 && kept < count && (kept < from || kept > to)) indexes.push(kept);
      return indexes.toSorted((a, b) => a - b);
    },
  });
  const items = virtual.getVirtualItems();
  const visible = virtual.range;

  const leaves = table.getVisibleLeafColumns();
  const open = (index: number) => {
    const row = list.rows.get(base + index);
    if (row !== undefined) onOpen(row);
  };
  const focus = useGridFocus({
    root: scroller,
    rows: total,
    columns: leaves.length,
    pageRows: Math.max(1, (visible?.endIndex ?? 20) - (visible?.startIndex ?? 0) - 2),
    scrollTo: (row) => virtual.scrollToIndex(row, { align: "auto" }),
    onOpen: open,
  });
  focusRow.current = focus.active.row;

  // Another filter or order is shown from its top.
  useEffect(() => {
    if (scroller.current !== null) scroller.current.scrollTop = 0;
  }, [key, base]);

  if (list.error !== null && list.rows.size === 0) return <ErrorNote error={list.error} onRetry={list.retry} />;
  if (list.total === 0 && !list.stale) return props.empty;
  const model = table.getRowModel().rows;
  const width = table.getTotalSize();
  const waiting = list.total === undefined;
  // The same rows then hold the data, so that they keep the focus.
  const drawn = waiting ? FIRST_ITEMS : items;
  const rowAt = (index: number, row: T | undefined) => (
    <Row
      key={index}
      row={row}
      index={index}
      base={base}
      columns={leaves}
      specs={byId}
      className={row === undefined ? "" : (props.rowClass?.(row) ?? "")}
      now={ticked}
      stop={focus.active.row === index ? focus.active.column : -1}
      onOpen={onOpen}
    />
  );
  return (
    <>
      {list.error !== null && <ErrorNote error={list.error} onRetry={list.retry} />}
      <AsOf at={list.answeredMs} waiting={list.waiting} />
      <Blocks base={base} shown={total} all={list.total ?? 0} onBase={(next) => setBlock({ key, base: next })} />
      <div
        ref={scroller}
        className={`grid-scroll ${list.stale ? "is-stale" : ""}`}
        style={{ "--first-column": `${leaves[0]?.getSize() ?? 0}px` } as CSSProperties}
      >
        <table
          className="grid"
          role="grid"
          aria-label={props.label}
          aria-rowcount={list.total === undefined ? -1 : list.total + 1}
          aria-colcount={leaves.length}
          aria-busy={list.fetching}
          style={{ width }}
          onKeyDown={focus.onKeyDown}
          onFocus={focus.onFocus}
        >
          <colgroup>
            {leaves.map((column) => (
              <col key={column.id} style={{ width: column.getSize() }} />
            ))}
          </colgroup>
          <thead>
            <tr aria-rowindex={1}>
              {leaves.map((column, index) => {
                const spec = byId.get(column.id);
                if (spec === undefined) return null;
                return (
                  <HeaderCell
                    key={column.id}
                    spec={spec}
                    column={index}
                    sorted={column.getIsSorted()}
        stop={focus.active.row < 0 && focus.active.column === index}
                    onSort={column.getCanSort() ? () => column.toggleSorting(undefined) : null}
                  />
                );
              })}
            </tr>
          </thead>
          <tbody>
            {drawn.map((item, at) => {
              const gap = item.start - (drawn[at - 1]?.end ?? HEADER_PX);
              const loaded = position.get(base + item.index);
              const row = loaded === undefined ? undefined : model[loaded];
              return (
                <Fragment key={item.index}>
                  {gap > 0 && <Spacer height={gap} columns={leaves.length} />}
                  {rowAt(item.index, row?.original)}
                </Fragment>
              );
            })}
            {items.length > 0 && <Spacer height={virtual.getTotalSize() - (items.at(-1)?.end ?? 0)} columns={leaves.length} />}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** Positions that are drawn before the number of rows is known. */
const FIRST_ITEMS = Array.from({ length: 12 }, (_, index) => ({
  index,
  start: HEADER_PX + index * ROW_PX,
  end: HEADER_PX + (index + 1) * ROW_PX,
}));

/** The first row of a row's page. */
const floor = (row: number) => row - (row % PAGE_ROWS);

function definitionOf<T extends object>(spec: GridColumn<T>): ColumnDef<typeof features, T> {
  return {
    id: spec.id,
    accessorFn: spec.value,
    size: spec.width,
    enableSorting: spec.sort !== null,
    sortDescFirst: isNumber(spec.kind) || spec.kind === "time",
  };
}

function sortingOf<T>(specs: readonly GridColumn<T>[], sort: string): SortingState {
  const { column, descending } = parseSort(sort);
  const spec = specs.find((candidate) => candidate.sort === column);
  return spec === undefined ? [] : [{ id: spec.id, desc: descending }];
}
