/**
 * Lines, areas and bars over days. uPlot draws them; the legend, the keyboard and the table of the same numbers
 * are ours. Colours are the tokens of the style sheet, read again when the theme changes.
 */

import { useEffect, useEffectEvent, useId, useMemo, useRef, useState } from "react";
import type uPlot from "uplot";

import { useDark } from "../components/theme";
import { Icon } from "../components/icons";
import { TermLabel } from "../components/Value";
import { exactBytes } from "../format/bytes";
import { factor } from "../format/numbers";
import { dayStart, longDay } from "../format/time";
import { shown, type Line, type Unit } from "./line";
import { options } from "./plot";

export interface TimeChartProps {
  /** What it shows, for assistive technology and the table's caption. */
  title: string;
  days: readonly string[];
  lines: readonly Line[];
  unit: Unit;
  height?: number;
}

export function TimeChart({ title, days, lines, unit, height = 240 }: TimeChartProps) {
  const [asTable, setAsTable] = useState(false);
  const [index, setIndex] = useState<number | null>(null);
  const at = index ?? lastKnown(days, lines);
  const named = lines.filter((line) => line.band !== true);
  return (
    <figure className="chart" aria-label={title}>
      <figcaption className="chart-legend">
        <span className="chart-day">{at === null ? "" : longDay(days[at] ?? "")}</span>
        {named.map((line) => (
          <span key={line.label} className="chart-key">
            <span className={`swatch swatch-${line.color} swatch-${line.dashed === true ? "dashed" : line.shape}`} aria-hidden="true" />
            {line.term === undefined ? line.label : <TermLabel term={line.term}>{line.label}</TermLabel>}
            <span className="chart-value" data-exact={exactOf(unit, at === null ? null : line.values[at])} data-term={line.term}>
              {shown(unit, at === null ? null : line.values[at])}
            </span>
          </span>
        ))}
        <button
          type="button"
          className="button button-small chart-switch"
          aria-pressed={asTable}
          onClick={() => setAsTable(!asTable)}
        >
          <Icon name={asTable ? "chart" : "table"} />
          {asTable ? "Chart" : "Numbers"}
        </button>
      </figcaption>
      {asTable ? (
        <ChartTable title={title} days={days} lines={named} unit={unit} height={height} />
      ) : (
        <Plot title={title} days={days} lines={lines} unit={unit} height={height} index={index} onIndex={setIndex} />
      )}
    </figure>
  );
}

/** The latest day with a value; for bars, with one above zero. */
function lastKnown(days: readonly string[], lines: readonly Line[]): number | null {
  for (let at = days.length - 1; at >= 0; at -= 1) {
    const says = (line: Line) => {
      const value = line.values[at];
      return value != null && line.band !== true && line.dashed !== true && (line.shape !== "bars" || value > 0);
    };
    if (lines.some(says)) return at;
  }
  return null;
}

const exactOf = (unit: Unit, value: number | null | undefined): string | undefined =>
  value === null || value === undefined ? undefined : unit === "bytes" ? exactBytes(value) : factor(value);

interface PlotProps extends Required<TimeChartProps> {
  index: number | null;
  onIndex: (index: number | null) => void;
}

function Plot({ title, days, lines, unit, height, index, onIndex }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useDark();
  const hint = useId();
  const data = useMemo(
    () => [days.map(dayStart), ...lines.map((line) => [...line.values])] as uPlot.AlignedData,
    [days, lines],
  );
  // Made again when the number or the looks of the lines change; new numbers are only set.
  const looks = JSON.stringify(lines.map(({ label, color, shape, dashed, band }) => [label, color, shape, dashed, band]));

  const draw = useEffectEvent((UPlot: typeof uPlot, element: HTMLElement) =>
    new UPlot(options({ lines, unit, width: element.clientWidth, height, onIndex, library: UPlot }), data, element));

  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    let ended = false;
    let watcher: ResizeObserver | undefined;
    void import("uplot").then(({ default: UPlot }) => {
      if (ended) return;
      const made = draw(UPlot, element);
      plot.current = made;
      watcher = new ResizeObserver(() => {
        if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height });
      });
      watcher.observe(element);
    });
    return () => {
      ended = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [looks, unit, height, dark]);

  useEffect(() => plot.current?.setData(data), [data]);

  const move = (step: number) => {
    const made = plot.current;
    if (made === null || days.length === 0) return;
    const from = index ?? days.length - 1 - (step < 0 ? -1 : 0);
    const to = Math.max(0, Math.min(days.length - 1, from + step));
    made.setCursor({ left: made.valToPos(dayStart(days[to] ?? ""), "x"), top: height / 3 });
    onIndex(to);
  };
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -7, PageDown: 7, Home: -1e6, End: 1e6 };
  return (
    <>
      <div
        ref={host}
        className="plot"
        role="group"
        aria-roledescription="chart"
        aria-label={title}
        aria-describedby={hint}
        tabIndex={0}
        style={{ height }}
        onKeyDown={(event) => {
          const step = steps[event.key];
          if (step === undefined) return;
          event.preventDefault();
          move(step);
        }}
        onBlur={() => onIndex(null)}
      />
      <p id={hint} className="visually-hidden">
        Use the arrow keys to move from day to day. The Numbers button shows a table instead.
      </p>
      <p className="visually-hidden" aria-live="polite">
        {index === null ? "" : spoken(days[index] ?? "", lines, unit, index)}
      </p>
    </>
  );
}

const spoken = (day: string, lines: readonly Line[], unit: Unit, index: number): string =>
  `${longDay(day)}: ${lines
    .filter((line) => line.band !== true && line.values[index] != null)
    .map((line) => `${line.label} ${shown(unit, line.values[index])}`)
    .join(", ")}`;

function ChartTable({ title, days, lines, unit, height }: Required<TimeChartProps>) {
  const order = days.map((_, at) => at).filter((at) => lines.some((line) => line.values[at] != null)).toReversed();
  return (
    <div className="table-scroll chart-table" style={{ height }} tabIndex={0} role="region" aria-label={`${title}, numbers`}>
      <table className="table">
        <caption className="visually-hidden">{title}</caption>
        <thead>
          <tr>
            <th scope="col">Day (UTC)</th>
            {lines.map((line) => (
              <th key={line.label} scope="col" className="number">
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {order.map((at) => (
            <tr key={days[at]}>
              <th scope="row">{days[at]}</th>
              {lines.map((line) => (
                <td key={line.label} className="number" data-term={line.term} data-exact={exactOf(unit, line.values[at])}>
                  {shown(unit, line.values[at])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
