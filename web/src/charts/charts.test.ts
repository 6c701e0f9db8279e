import { describe, expect, it } from "vitest";

import type { Capacity } from "../api/schema";
import { growthLines, horizon } from "../pages/overview/forecast";
import { level, weeksUntil } from "./Calendar";
import { sparkPath } from "./Sparkline";

describe("a sparkline", () => {
  it("keeps gaps as gaps and marks the last point", () => {
    const { path, last } = sparkPath([1, null, 3, 2]);
    expect(path.match(/[ML]/g)?.join("")).toBe("MML");
    expect(last?.[0]).toBe(93);
  });
  it("of nothing is nothing, of equal values a line in the middle", () => {
    expect(sparkPath([null, null])).toEqual({ path: "", last: null });
    expect(sparkPath([2, 2]).path).toBe("M3 11L93 11");
  });
});

describe("the calendar", () => {
  it("ends with the week of today, Monday first", () => {
    const weeks = weeksUntil("2026-11-21", 3);
    expect(weeks.map((week) => week[0])).toEqual(["2026-11-02", "2026-11-09", "2026-11-16"]);
    expect(weeks.at(-1)?.[5]).toBe("2026-11-21");
  });
  it("grades days by the largest", () => {
    expect([0, 1, 25, 100].map((value) => level(value, 100))).toEqual([1, 1, 2, 4]);
  });
});

describe("the forecast", () => {
  const capacity = (changes: Partial<Capacity>): Capacity => ({
    total_bytes: 1000,
    free_bytes: 600,
    reserve_bytes: 100,
    usable_bytes: 500,
    repository_bytes: 300,
    catalog_bytes: 10,
    index_bytes: 10,
    history: Array.from({ length: 10 }, (_, index) => ({ day: `2026-11-${String(index + 1).padStart(2, "0")}`, stored_bytes: 100 + 10 * index, bucket_bytes: 0, archive_bytes: 0 })),
    used: { data_bytes: 300, recipe_bytes: 0, parity_bytes: 0, condemned_bytes: 0, bucket_bytes: 0, archive_bytes: 0 },
    growth: { days_observed: 10, bytes_per_day: 10, low: 8, high: 12 },
    forecast: { state: "growing", full_on: "2026-11-25", earliest: null, latest: null, confidence_pct: 90, text: "" },
    ...changes,
  });

  it("goes on from the last day, with its band", () => {
    const { days, lines } = growthLines(capacity({}));
    expect(days.at(-1)).toBe("2026-11-27");
    const line = (label: string) => lines.find((each) => each.label === label)?.values;
    expect(line("Stored")?.[9]).toBe(190);
    expect(line("Stored")?.[10]).toBeNull();
    expect([line("Forecast")?.[8], line("Forecast")?.[9], line("Forecast")?.[10]]).toEqual([null, 190, 200]);
    expect([line("High")?.[10], line("Low")?.[10]]).toEqual([202, 198]);
    expect(lines.every((each) => each.values.length === days.length)).toBe(true);
  });

  it("has no limit where the file system does not say how much room it has", () => {
    const labels = (changes: Partial<Capacity>) => growthLines(capacity(changes)).lines.map((line) => line.label);
    expect(labels({ usable_bytes: 100 })).toContain("Full");
    expect(labels({ total_bytes: null, free_bytes: null, usable_bytes: null })).not.toContain("Full");
  });

  it("says nothing where it is too early", () => {
    const early = capacity({ growth: null, forecast: { state: "too_early", full_on: null, earliest: null, latest: null, confidence_pct: 90, text: "" } });
    expect(horizon(early)).toBe(0);
    expect(growthLines(early).lines).toHaveLength(1);
  });
});
