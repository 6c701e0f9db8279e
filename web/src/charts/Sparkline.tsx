/** A tiny chart of a row's factors. Gaps stay gaps; the last point is marked. */

import { memo } from "react";

import { factor } from "../format/numbers";

const WIDTH = 96;
const HEIGHT = 22;
const PAD = 3;

/** The line's pieces (a `null` ends one) and its last point. */
export function sparkPath(values: readonly (number | null)[]): { path: string; last: [number, number] | null } {
  const known = values.filter((value): value is number => value !== null);
  if (known.length === 0) return { path: "", last: null };
  const low = Math.min(...known);
  const span = Math.max(...known) - low;
  const step = (WIDTH - 2 * PAD) / Math.max(1, values.length - 1);
  let path = "";
  let pen = "M";
  let last: [number, number] | null = null;
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const x = round(PAD + index * step);
    const y = round(span === 0 ? HEIGHT / 2 : HEIGHT - PAD - ((value - low) / span) * (HEIGHT - 2 * PAD));
    path += `${pen}${x} ${y}`;
    pen = "L";
    last = [x, y];
  });
  return { path, last };
}

const round = (value: number) => Math.round(value * 10) / 10;

export const Sparkline = memo(function Sparkline({ values }: { values: readonly (number | null)[] }) {
  const { path, last } = sparkPath(values);
  const known = values.filter((value): value is number => value !== null);
  if (last === null) return <span className="muted">–</span>;
  const words = `${known.length} runs, from ${factor(known[0])} to ${factor(known.at(-1))}`;
  return (
    <svg className="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img" aria-label={words}>
      <path d={path} />
      <circle cx={last[0]} cy={last[1]} r="2.2" />
    </svg>
  );
});
