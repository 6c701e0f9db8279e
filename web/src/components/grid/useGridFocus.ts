/**
 * The keyboard in a grid: one tab stop, arrow keys from cell to cell, headers included (row -1).
 * The focused cell may lie far outside of what is drawn; then the grid scrolls there first.
 */

import { useLayoutEffect, useRef, useState, type FocusEvent, type KeyboardEvent, type RefObject } from "react";

export interface Spot {
  row: number;
  column: number;
}

interface GridFocusOptions {
  root: RefObject<HTMLElement | null>;
  rows: number;
  columns: number;
  /** Rows that Page Down moves by. */
  pageRows: number;
  scrollTo: (row: number) => void;
  onOpen: (row: number) => void;
}

/** The spot that a key leads to; `null` when the key is not for the grid. */
export function target(key: string, ctrl: boolean, at: Spot, rows: number, columns: number, pageRows: number): Spot | null {
  const clampRow = (row: number) => Math.max(-1, Math.min(rows - 1, row));
  const clampColumn = (column: number) => Math.max(0, Math.min(columns - 1, column));
  switch (key) {
    case "ArrowUp":
      return { row: clampRow(at.row - 1), column: at.column };
    case "ArrowDown":
      return { row: clampRow(at.row + 1), column: at.column };
    case "ArrowLeft":
      return { row: at.row, column: clampColumn(at.column - 1) };
    case "ArrowRight":
      return { row: at.row, column: clampColumn(at.column + 1) };
    case "PageUp":
      return { row: Math.max(0, clampRow(at.row - pageRows)), column: at.column };
    case "PageDown":
      return { row: clampRow(at.row + pageRows), column: at.column };
    case "Home":
      return ctrl ? { row: Math.min(0, rows - 1), column: 0 } : { row: at.row, column: 0 };
    case "End":
      return ctrl ? { row: rows - 1, column: columns - 1 } : { row: at.row, column: columns - 1 };
    default:
      return null;
  }
}

export function useGridFocus({ root, rows, columns, pageRows, scrollTo, onOpen }: GridFocusOptions) {
  const [spot, setSpot] = useState<Spot>({ row: 0, column: 0 });
  const pending = useRef(false);
  const active: Spot = { row: Math.min(spot.row, rows - 1), column: Math.min(spot.column, columns - 1) };

  const cell = (at: Spot) =>
    root.current?.querySelector<HTMLElement>(`[data-spot="${at.row}.${at.column}"]`) ?? null;

  // After every render: this one may have drawn the wanted cell.
  useLayoutEffect(() => {
    if (!pending.current) return;
    const element = cell(active);
    if (element === null) return;
    pending.current = false;
    element.focus();
  });

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.metaKey) return;
    if (event.key === "Enter" && active.row >= 0) {
      event.preventDefault();
      onOpen(active.row);
      return;
    }
    const next = target(event.key, event.ctrlKey, active, rows, columns, pageRows);
    if (next === null) return;
    event.preventDefault();
    setSpot(next);
    const element = cell(next);
    if (element !== null) {
      element.focus();
      return;
    }
    pending.current = true;
    if (next.row >= 0) scrollTo(next.row);
  };

  const onFocus = (event: FocusEvent) => {
    const text = event.target instanceof Element ? event.target.closest("[data-spot]")?.getAttribute("data-spot") : null;
    const [row, column] = text?.split(".").map(Number) ?? [];
    if (row === undefined || column === undefined) return;
    if (row !== spot.row || column !== spot.column) setSpot({ row, column });
  };

  return { active, onKeyDown, onFocus };
}
