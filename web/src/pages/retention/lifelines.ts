/** Simulated restore points as lines over days: each from the day it is made to the last on which it exists. */

import type { SimulatedDay } from "../../api/schema";

/** What keeps a restore point, from the rule of the longest periods to those that say nothing of periods. */
export const KEEPERS = ["yearly", "monthly", "weekly", "daily", "hourly", "other"] as const;

export type Keeper = (typeof KEEPERS)[number];

/** The rule of the longest periods among those that keep it. */
export function keeperOf(reasons: readonly string[]): Keeper {
  return KEEPERS.find((keeper) => reasons.some((reason) => reason.endsWith(keeper))) ?? "other";
}

export interface Lifeline {
  keeper: Keeper;
  /** Days since the first one: when the restore point was made, to a fraction. */
  made: number;
  /** The first and the last day on which this keeps it, counted from the first day. */
  from: number;
  to: number;
}

const DAY_MS = 86_400_000;

/** The lines of all restore points. One whose keeper changes is several lines at the same height. */
export function lifelines(days: readonly SimulatedDay[]): Lifeline[] {
  const start = Date.parse(`${days[0]?.date ?? ""}T00:00:00Z`);
  const open = new Map<string, Lifeline>();
  const done: Lifeline[] = [];
  days.forEach((day, index) => {
    for (const { at, reasons } of day.points) {
      const keeper = keeperOf(reasons);
      const line = open.get(at);
      if (line !== undefined && line.keeper === keeper && line.to === index - 1) line.to = index;
      else {
        const next = { keeper, made: (Date.parse(at) - start) / DAY_MS, from: index, to: index };
        open.set(at, next);
        done.push(next);
      }
    }
  });
  return done;
}

/** The path of one keeper's lines, in pixels. Lines that would be drawn on top of each other are drawn once. */
export function pathOf(lines: readonly Lifeline[], keeper: Keeper, scale: { x: (day: number) => number; y: (day: number) => number }): string {
  const parts = new Set<string>();
  for (const line of lines) {
    if (line.keeper !== keeper) continue;
    const y = Math.round(2 * scale.y(line.made)) / 2;
    parts.add(`M${scale.x(line.from).toFixed(1)} ${y}H${scale.x(line.to + 1).toFixed(1)}`);
  }
  return [...parts].join("");
}
