/**
 * The drawing: days across, restore points up, by when they were made. Each is a line from its first to its last day,
 * coloured by what keeps it. A day is chosen with the pointer or, by keyboard, with the slider below; what exists on it
 * is listed beside it.
 */

import { useEffect, useMemo, useRef, useState, type PointerEvent } from "react";

import type { SimulatedDay } from "../../api/schema";
import { TermLabel } from "../../components/Value";
import { plural } from "../../format/numbers";
import { longDay, minute } from "../../format/time";
import { KEEPERS, keeperOf, lifelines, pathOf, type Keeper, type Lifeline } from "./lifelines";

const HEIGHT = 320;
const LEFT = 58;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 24;
const MIN_WIDTH = 280;
/** Between two labels of an axis at least. */
const LABEL_PX = 64;

const WORDS: Record<Keeper, string> = { yearly: "yearly", monthly: "monthly", weekly: "weekly", daily: "daily", hourly: "hourly", other: "last, within" };

/** Days on which a month begins, thinned out so that their labels have room. */
function months(days: readonly SimulatedDay[], pixels: number): { index: number; label: string }[] {
  const all = days.flatMap((day, index) => (day.date.endsWith("-01") ? [{ index, label: day.date.slice(0, 7) }] : []));
  const step = [1, 2, 3, 4, 6, 12].find((each) => (pixels * each) / Math.max(1, all.length) >= LABEL_PX) ?? 24;
  return all.filter(({ label }) => (Number(label.slice(5)) - 1) % step === 0);
}

export function Kept({ days }: { days: readonly SimulatedDay[] }) {
  const root = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(640);
  const [chosen, setChosen] = useState(days.length - 1);
  useEffect(() => {
    const element = root.current;
    if (element === null) return;
    const watcher = new ResizeObserver(() => setWidth(Math.max(MIN_WIDTH, element.clientWidth)));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const at = Math.max(0, Math.min(chosen, days.length - 1));
  const day = days[at];
  const most = useMemo(() => days.reduce((largest, each) => Math.max(largest, each.points.length), 0), [days]);
  const lines = useMemo(() => lifelines(days), [days]);
  if (day === undefined) return <p className="muted">Nothing to show.</p>;
  const plotWidth = width - LEFT - RIGHT;
  const x = (index: number) => LEFT + (plotWidth * index) / days.length;
  const choose = (event: PointerEvent<SVGSVGElement>) => {
    const left = event.currentTarget.getBoundingClientRect().left;
    setChosen(Math.max(0, Math.min(days.length - 1, Math.floor(((event.clientX - left - LEFT) / plotWidth) * days.length))));
  };
  const said = `${longDay(day.date)}: ${plural(day.points.length, "restore point")}`;
  return (
    <div className="kept" ref={root}>
      <Legend lines={lines} />
      <svg className="kept-plot" width={width} height={HEIGHT} role="img" aria-label={`Restore points kept over ${plural(days.length, "day")}, at most ${most} at once`} onPointerMove={choose} onPointerDown={choose}>
        <Lines days={days} lines={lines} width={width} />
        <line className="kept-cursor" x1={x(at + 0.5)} x2={x(at + 0.5)} y1={TOP} y2={HEIGHT - BOTTOM} />
      </svg>
      <label className="kept-slider">
        <span className="visually-hidden">Day</span>
        <input type="range" min={0} max={days.length - 1} value={at} aria-valuetext={said} onChange={(event) => setChosen(Number(event.target.value))} />
      </label>
      <div className="kept-day">
        <p>
          <strong>{longDay(day.date)}</strong>: {plural(day.points.length, "restore point")} <TermLabel term="kept_points">kept</TermLabel>{" "}
          <span className="muted">(at most {most} on any day)</span>
        </p>
        {/* Focusable, so that the keyboard scrolls it. */}
        <div className="kept-list" role="region" tabIndex={0} aria-label={`Restore points on ${longDay(day.date)}`}>
          <ol>
          {day.points.map((point) => (
            <li key={point.at}>
              <span className={`swatch keeper-${keeperOf(point.reasons)}`} aria-hidden="true" />
              <span className="nowrap">{minute(point.at)}</span> <span className="muted">{point.reasons.join(", ")}</span>
            </li>
          ))}
          </ol>
        </div>
      </div>
    </div>
  );
}

function Legend({ lines }: { lines: readonly Lifeline[] }) {
  const used = KEEPERS.filter((keeper) => lines.some((line) => line.keeper === keeper));
  return (
    <p className="kept-legend">
      Kept by:
      {used.map((keeper) => (
        <span key={keeper} className="chart-key">
          <span className={`swatch keeper-${keeper}`} aria-hidden="true" />
          {WORDS[keeper]}
        </span>
      ))}
    </p>
  );
}

/** Axes and lines. They change with the rules only, not with the day that is chosen. */
function Lines({ days, lines, width }: { days: readonly SimulatedDay[]; lines: readonly Lifeline[]; width: number }) {
  const drawn = useMemo(() => {
    const plotWidth = width - LEFT - RIGHT;
    const plotHeight = HEIGHT - TOP - BOTTOM;
    const x = (index: number) => LEFT + (plotWidth * index) / days.length;
    const y = (made: number) => HEIGHT - BOTTOM - (plotHeight * made) / days.length;
    return {
      across: months(days, plotWidth).map(({ index, label }) => ({ at: x(index), label })),
      up: months(days, 2 * plotHeight).map(({ index, label }) => ({ at: y(index), label })),
      paths: KEEPERS.map((keeper) => ({ keeper, path: pathOf(lines, keeper, { x, y }) })).filter(({ path }) => path !== ""),
    };
  }, [days, lines, width]);
  return (
    <>
      {drawn.across.map(({ at, label }) => (
        <g key={label}>
          <line className="kept-grid" x1={at} x2={at} y1={TOP} y2={HEIGHT - BOTTOM} />
          <text className="kept-label" x={at} y={HEIGHT - 7} textAnchor="middle">
            {label}
          </text>
        </g>
      ))}
      {drawn.up.map(({ at, label }) => (
        <text key={label} className="kept-label" x={LEFT - 8} y={at + 4} textAnchor="end">
          {label}
        </text>
      ))}
      {/* The rule of the longest periods last, on top. */}
      {drawn.paths.toReversed().map(({ keeper, path }) => (
        <path key={keeper} className={`kept-line keeper-${keeper}`} d={path} />
      ))}
    </>
  );
}
