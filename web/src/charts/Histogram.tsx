/** Bars over ranges of a value: the count of each and its share. */

import { useRef, type KeyboardEvent } from "react";

import type { Term } from "../format/definitions";
import { TermLabel } from "../components/Value";

export interface Bin {
  label: string;
  value: number;
  /** What the bar shows in words, for the tooltip and assistive technology. */
  words: string;
}

interface HistogramProps {
  term: Term;
  /** Name of the horizontal axis. */
  axis: string;
  bins: readonly Bin[];
  color: "blue" | "teal" | "amber" | "violet";
}

export function Histogram({ term, axis, bins, color }: HistogramProps) {
  const list = useRef<HTMLOListElement>(null);
  const highest = Math.max(1, ...bins.map((bin) => bin.value));
  const whole = bins.reduce((sum, bin) => sum + bin.value, 0);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const bars = [...(list.current?.children ?? [])] as HTMLElement[];
    const at = bars.findIndex((bar) => bar === document.activeElement);
    const next = bars[at + step];
    if (step === 0 || at < 0 || next === undefined) return;
    event.preventDefault();
    bars.forEach((bar) => (bar.tabIndex = -1));
    next.tabIndex = 0;
    next.focus();
  };
  return (
    <figure className="histogram">
      <ol ref={list} onKeyDown={onKeyDown}>
        {bins.map((bin, index) => (
          <li key={bin.label} tabIndex={index === 0 ? 0 : -1} data-term={term} data-exact={bin.words} aria-label={bin.words}>
            <span className="histogram-share" aria-hidden="true">
              {whole > 0 && bin.value > 0 ? shareText(bin.value / whole) : ""}
            </span>
            <span className="histogram-track" aria-hidden="true">
              <span
                className={`histogram-bar fill-${color}`}
                style={{ height: `${bin.value === 0 ? 0 : Math.max(1.5, (100 * bin.value) / highest)}%` }}
              />
            </span>
            <span className="histogram-label" aria-hidden="true">
              {bin.label}
            </span>
          </li>
        ))}
      </ol>
      <figcaption>
        <TermLabel term={term}>{axis}</TermLabel>
      </figcaption>
    </figure>
  );
}

const shareText = (share: number): string => {
  const percent = 100 * share;
  return percent < 1 ? "<1 %" : `${Math.round(percent)} %`;
};
