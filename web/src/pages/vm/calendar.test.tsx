import { render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";

import { Calendar } from "../../charts/Calendar";
import { backup } from "../../test/fixtures";
import { calendarDays } from "./calendarDays";

afterEach(() => vi.unstubAllEnvs());

/** A time of the local day, at that hour. */
const at = (day: number, hour: number): string => new Date(2026, 10, day, hour, 30).toISOString();

describe("the calendar of restore points", () => {
  it("counts failures for the local day, as restore points", () => {
    vi.stubEnv("TZ", "Asia/Tokyo");
    expect(at(20, 0)).toBe("2026-11-19T15:30:00.000Z");
    const days = calendarDays([backup(0, { finished: at(20, 0) })], [{ finished: at(20, 0) }, { finished: at(20, 23) }]);
    expect([...days.keys()]).toEqual(["2026-11-20"]);
    expect(days.get("2026-11-20")).toMatchObject({ points: 1, failed: 2 });
  });

  it("says of which days restore points are not loaded", () => {
    const days = calendarDays([backup(0, { finished: at(20, 12) }), backup(1, { finished: at(18, 12) })], []);
    render(<Calendar days={days} today="2026-11-21" unloaded="2026-11-18" chosen="" onChoose={() => {}} />);
    const said = (day: number) => document.querySelector(`[data-day="2026-11-${day}"]`)?.getAttribute("aria-label") ?? "";
    expect(said(20)).toMatch(/: 1 restore point, /);
    expect(said(19)).toMatch(/: no restore point$/);
    expect(said(18)).toMatch(/: 1 restore point or more, /);
    expect(said(17)).toMatch(/: restore points not loaded yet$/);
    screen.getByText(/from Wed,? 18 Nov 2026 back not loaded yet/);
  });
});
