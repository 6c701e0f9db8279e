/** The days and lines of the growth chart: the history, and the forecast with its uncertainty. */

import type { Capacity } from "../../api/schema";
import type { Line } from "../../charts/line";

const DAY_MS = 86_400_000;
/** The forecast covers at least this many days, and at most three times as many as the history. */
const LEAST_DAYS = 7;
const PAST_FACTOR = 3;
const MOST_DAYS = 180;

const after = (day: string, days: number): string => new Date(Date.parse(`${day}T00:00:00Z`) + days * DAY_MS).toISOString().slice(0, 10);

/** Days between two days. */
const between = (from: string, to: string): number => Math.round((Date.parse(to) - Date.parse(from)) / DAY_MS);

/** How many days the forecast is drawn for. */
export function horizon(capacity: Capacity): number {
  const { history, growth, forecast } = capacity;
  const last = history.at(-1)?.day;
  if (growth === null || last === undefined || forecast.state === "too_early") return 0;
  const most = Math.min(MOST_DAYS, Math.max(LEAST_DAYS, history.length * PAST_FACTOR));
  const usual = Math.max(LEAST_DAYS, Math.round(history.length / 2));
  if (forecast.full_on === null) return usual;
  return Math.max(usual, Math.min(most, between(last, forecast.full_on.slice(0, 10)) + 2));
}

/** The chart's days and lines. */
export function growthLines(capacity: Capacity): { days: string[]; lines: Line[] } {
  const { history, growth } = capacity;
  const ahead = horizon(capacity);
  const last = history.at(-1);
  const days = history.map((entry) => entry.day);
  if (last !== undefined) for (let step = 1; step <= ahead; step += 1) days.push(after(last.day, step));
  const stored = days.map((_, index) => history[index]?.stored_bytes ?? null);
  const lines: Line[] = [{ label: "Stored", term: "repository_bytes", color: "teal", shape: "area", values: stored }];
  if (history.some((entry) => entry.bucket_bytes > 0)) {
    const there = days.map((_, index) => history[index]?.bucket_bytes ?? null);
    lines.push({ label: "In the bucket", term: "bucket_bytes", color: "blue", shape: "line", values: there });
  }
  if (growth === null || last === undefined || ahead === 0) return { days, lines };
  const from = history.length - 1;
  const slope = (perDay: number) =>
    days.map((_, index) => (index < from ? null : Math.max(0, last.stored_bytes + perDay * (index - from))));
  lines.push(
    { label: "Forecast", term: "growth", color: "teal", shape: "line", dashed: true, values: slope(growth.bytes_per_day) },
    { label: "High", color: "teal", shape: "line", band: true, values: slope(growth.high) },
    { label: "Low", color: "teal", shape: "line", band: true, values: slope(growth.low) },
  );
  if (capacity.usable_bytes === null) return { days, lines };
  const limit = last.stored_bytes + capacity.usable_bytes;
  const reached = Math.max(...slope(growth.high).map((value) => value ?? 0));
  // The limit is only drawn when the lines come near it.
  if (reached > limit * 0.5) {
    lines.push({ label: "Full", term: "usable_bytes", color: "red", shape: "line", dashed: true, values: days.map(() => limit) });
  }
  return { days, lines };
}
