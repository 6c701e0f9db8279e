/**
 * The days of the last months as a heat map: a column for each week, darker where more was new. A day is a button;
 * the arrow keys move from day to day, and only one day is a tab stop.
 */

import { useEffect, useMemo, useRef, useState, type CSSProperties, type KeyboardEvent } from "react";

import { bytes } from "../format/bytes";
import { plural } from "../format/numbers";
import { day as dayText, longDay, startOfDay } from "../format/time";

export interface CalendarDay {
  points: number;
  new_bytes: number;
  failed: number;
}

interface CalendarProps {
  /** By local day, `2026-11-21`. */
  days: ReadonlyMap<string, CalendarDay>;
  /** The local day that it ends with. */
  today: string;
  /** The last local day of which restore points may be missing, as those before it; empty: all are there. */
  unloaded?: string;
  chosen: string;
  onChoose: (day: string) => void;
}

/** Width of a week: the cell and the gap beside it. */
const CELL_PX = 17;
const LARGEST_CELL_PX = 24;
const MIN_WEEKS = 26;
const MAX_WEEKS = 53;
const LEVELS = 4;

/** Weeks as columns, Monday first, ending with the week of `today`. */
export function weeksUntil(today: string, weeks: number): string[][] {
  const monday = startOfDay(today);
  monday.setDate(monday.getDate() - ((monday.getDay() + 6) % 7) - 7 * (weeks - 1));
  return Array.from({ length: weeks }, (_week, week) =>
    Array.from({ length: 7 }, (_day, weekday) => {
      const date = new Date(monday);
      date.setDate(monday.getDate() + 7 * week + weekday);
      return dayText(date);
    }),
  );
}

/** As many weeks as the history has, at least half a year, at most what fits. */
function weeksFor(days: ReadonlyMap<string, CalendarDay>, today: string, width: number): number {
  const first = [...days.keys()].reduce((least, text) => (text < least ? text : least), today);
  const history = Math.ceil((Date.parse(today) - Date.parse(first)) / (7 * 86_400_000)) + 2;
  const fit = Math.floor((width - 34) / CELL_PX);
  return Math.max(8, Math.min(MAX_WEEKS, fit, Math.max(MIN_WEEKS, history)));
}

/** 1 to 4, by the share of the largest day (square root: small days stay visible). */
export function level(value: number, largest: number): number {
  if (value <= 0 || largest <= 0) return 1;
  return Math.max(1, Math.min(LEVELS, Math.ceil(LEVELS * Math.sqrt(value / largest))));
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export function Calendar({ days, today, unloaded = "", chosen, onChoose }: CalendarProps) {
  const root = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(34 + MIN_WEEKS * CELL_PX);
  const [active, setActive] = useState(today);
  useEffect(() => {
    const element = root.current;
    if (element === null || typeof ResizeObserver === "undefined") return;
    const watcher = new ResizeObserver(() => setWidth(element.clientWidth));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const weeks = weeksFor(days, today, width);
  const cell = Math.max(CELL_PX, Math.min(LARGEST_CELL_PX, Math.floor((width - 34) / weeks))) - 3;
  const columns = useMemo(() => weeksUntil(today, weeks), [today, weeks]);
  const largest = Math.max(0, ...[...days.values()].map((entry) => entry.new_bytes));
  const order = columns.flat();
  const stop = order.includes(active) ? active : today;

  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -7, ArrowRight: 7, ArrowUp: -1, ArrowDown: 1, Home: -order.length, End: order.length };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const last = order.indexOf(today);
    const at = Math.max(0, Math.min(last, order.indexOf(stop) + step));
    const next = order[at] ?? today;
    setActive(next);
    root.current?.querySelector<HTMLElement>(`[data-day="${next}"]`)?.focus();
  };

  return (
    <div className="calendar" ref={root} style={{ "--cell": `${cell}px` } as CSSProperties}>
      <div className="calendar-grid" role="group" aria-label="Restore points by day" onKeyDown={onKeyDown}>
        <div className="calendar-weekdays" aria-hidden="true">
          <span className="calendar-month" />
          {["Mon", "", "Wed", "", "Fri", "", "Sun"].map((name, index) => (
            <span key={index}>{name}</span>
          ))}
        </div>
        {columns.map((week, index) => (
          <div className="calendar-week" key={week[0]}>
            <span className="calendar-month" aria-hidden="true">
              {monthOf(columns, index)}
            </span>
            {week.map((text) => (
              <Day
                key={text}
                text={text}
                entry={days.get(text)}
                future={text > today}
                partly={text <= unloaded}
                largest={largest}
                chosen={text === chosen}
                stop={text === stop}
                onChoose={() => {
                  setActive(text);
                  onChoose(text === chosen ? "" : text);
                }}
              />
            ))}
          </div>
        ))}
      </div>
      <p className="calendar-legend">
        <span className="calendar-cell level-none" aria-hidden="true" /> {unloaded === "" ? "no restore point" : `no restore point, or from ${longDay(unloaded)} back not loaded yet`}
        <span className="calendar-cell level-1" aria-hidden="true" />
        <span className="calendar-cell level-2" aria-hidden="true" />
        <span className="calendar-cell level-3" aria-hidden="true" />
        <span className="calendar-cell level-4" aria-hidden="true" /> little to much new data
        <span className="calendar-cell level-none day-failed" aria-hidden="true" /> a run failed
      </p>
    </div>
  );
}

/** The month's name above the first week that begins in it. */
function monthOf(columns: string[][], index: number): string {
  const month = columns[index]?.[0]?.slice(5, 7);
  const before = columns[index - 1]?.[0]?.slice(5, 7);
  if (month === undefined || month === before || (index === 0 && columns[2]?.[0]?.slice(5, 7) !== month)) return "";
  return MONTHS[Number(month) - 1] ?? "";
}

interface DayProps {
  text: string;
  entry: CalendarDay | undefined;
  future: boolean;
  /** Whether restore points of it may be missing. */
  partly: boolean;
  largest: number;
  chosen: boolean;
  stop: boolean;
  onChoose: () => void;
}

function Day({ text, entry, future, partly, largest, chosen, stop, onChoose }: DayProps) {
  if (future) return <span className="calendar-cell calendar-future" />;
  const points = entry?.points ?? 0;
  const failed = entry?.failed ?? 0;
  const words = [
    longDay(text),
    points === 0
      ? partly ? "restore points not loaded yet" : "no restore point"
      : `${plural(points, "restore point")}${partly ? " or more" : ""}, ${bytes(entry?.new_bytes ?? 0)} new`,
    ...(failed > 0 ? [`${plural(failed, "disk run")} failed`] : []),
  ].join(": ");
  const looks = points === 0 ? "level-none" : `level-${level(entry?.new_bytes ?? 0, largest)}`;
  return (
    <button
      type="button"
      className={`calendar-cell ${looks} ${failed > 0 ? "day-failed" : ""}`}
      data-day={text}
      data-exact={words}
      aria-label={words}
      aria-pressed={chosen}
      tabIndex={stop ? 0 : -1}
      onClick={onChoose}
    />
  );
}
