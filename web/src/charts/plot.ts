/** uPlot's options for our charts. */

import type uPlot from "uplot";

import { BYTE_STEPS } from "../format/bytes";
import { tick, type Line, type Unit } from "./line";

interface PlotOptions {
  lines: readonly Line[];
  unit: Unit;
  width: number;
  height: number;
  /** Called with the hovered day. */
  onIndex: (index: number | null) => void;
  /** uPlot itself, which is loaded on demand. */
  library: typeof uPlot;
}

const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A token as a colour that the canvas understands: `light-dark()` is only resolved where it is used. */
function resolved(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value || color(name);
}

function faded(rgb: string, alpha: number): string {
  const numbers = rgb.match(/[\d.]+/g)?.slice(0, 3) ?? ["128", "128", "128"];
  return `rgba(${numbers.join(",")},${alpha})`;
}

const FONT = '12px "Inter", "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif';

export function options({ lines, unit, width, height, onIndex, library }: PlotOptions): uPlot.Options {
  const ink = resolved("--muted");
  const grid = resolved("--grid");
  const axis = { stroke: ink, font: FONT, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    // Days are UTC days: their axis must not move with the reader's time zone.
    tzDate: (seconds) => utc(seconds),
    padding: [10, 24, 0, 0],
    cursor: {
      points: { size: 7, width: 2 },
      drag: { x: false, y: false },
      y: false,
    },
    scales: {
      x: { time: true, range: (_plot, first, last) => dayRange(first, last, lines.some((line) => line.shape === "bars")) },
      y: { range: (_plot, _low, high) => [0, high === null || high <= 0 ? (unit === "bytes" ? 1024 : 1) : high * 1.08] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 28, space: 64, values: dayLabels },
      {
        ...axis,
        size: 76,
        space: 40,
        gap: 8,
        ...(unit === "bytes" ? { incrs: BYTE_STEPS } : {}),
        values: (_plot, ticks) => ticks.map((value) => tick(unit, value)),
      },
    ],
    series: [{}, ...lines.map((line) => series(line, library))],
    bands: lines.flatMap((line, index) =>
      line.band === true && lines[index + 1]?.band === true
        ? [{ series: [index + 1, index + 2] as [number, number], fill: faded(resolved(`--chart-${line.color}`), 0.14) }]
        : [],
    ),
    hooks: {
      setCursor: [(plot) => onIndex(plot.cursor.left !== undefined && plot.cursor.left >= 0 ? (plot.cursor.idx ?? null) : null)],
    },
  };
}

function series(line: Line, library: typeof uPlot): uPlot.Series {
  const stroke = resolved(`--chart-${line.color}`);
  const base: uPlot.Series = {
    label: line.label,
    stroke,
    width: line.band === true ? 0 : 2,
    points: { show: (_plot, _index, first, last) => line.band !== true && last - first < 3, size: 6, fill: stroke },
    spanGaps: false,
  };
  if (line.dashed === true) base.dash = [5, 5];
  if (line.shape === "area") base.fill = faded(stroke, 0.16);
  if (line.shape === "bars") {
    base.fill = faded(stroke, 0.75);
    base.width = 0;
    base.points = { show: false };
    const bars = library.paths.bars?.({ size: [0.7, 22, 1], radius: 0.12 });
    if (bars !== undefined) base.paths = bars;
  }
  return base;
}

const DAY_S = 86_400;

/** The range of the axis of days: with room for the outer bars; a single day is in the middle of a week. */
function dayRange(first: number, last: number, bars: boolean): [number, number] {
  if (first === last) return [first - 3 * DAY_S, last + 3 * DAY_S];
  return bars ? [first - DAY_S / 2, last + DAY_S / 2] : [first, last];
}

/** A date whose local fields are the UTC ones. */
function utc(seconds: number): Date {
  const date = new Date(seconds * 1000);
  return new Date(date.getTime() + date.getTimezoneOffset() * 60_000);
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** `21 Nov`, with the year at its first tick. Ticks between days (of a short range) have no label. */
function dayLabels(_plot: uPlot, ticks: number[]): string[] {
  let year = 0;
  let before = "";
  return ticks.map((seconds) => {
    const date = new Date(seconds * 1000);
    const text = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()] ?? ""}`;
    if (text === before || date.getUTCHours() !== 0) return "";
    before = text;
    const full = year !== 0 && date.getUTCFullYear() !== year ? `${text} ${date.getUTCFullYear()}` : text;
    year = date.getUTCFullYear();
    return full;
  });
}
