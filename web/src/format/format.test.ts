import { describe, expect, it } from "vitest";

import { bytes, byteTick, exactBytes } from "./bytes";
import { DEFINITIONS, TERMS } from "./definitions";
import { count, duration, factor, percent, plural, rate } from "./numbers";
import { minute, relative, second } from "./time";

describe("bytes", () => {
  // The same pairs as the command line's test of the same rule.
  it.each([
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1.00 KiB"],
    [1536, "1.50 KiB"],
    [10 * 2 ** 20, "10.0 MiB"],
    [1023 * 2 ** 20, "1.00 GiB"],
    [16 * 2 ** 30, "16.0 GiB"],
    [2 ** 64, "16.0 EiB"],
    [-1536, "−1.50 KiB"],
    [null, "–"],
    [undefined, "–"],
    [Number.NaN, "–"],
  ])("%s is %s", (value, text) => expect(bytes(value)).toBe(text));

  it("says every digit", () => expect(exactBytes(17_179_869_184)).toBe("17,179,869,184 bytes"));

  it("labels an axis with no more digits than needed", () => {
    expect([0, 512, 2 ** 30, 1.5 * 2 ** 30].map(byteTick)).toEqual(["0", "512 B", "1 GiB", "1.5 GiB"]);
  });
});

describe("numbers", () => {
  it("factors have two decimals until they are large", () => {
    expect([factor(2.345), factor(999.99), factor(12_345.6), factor(null)]).toEqual(["2.35×", "999.99×", "12,346×", "–"]);
  });
  it("a share never rounds up to all", () => {
    expect([percent(99.96), percent(100), percent(93.75), percent(-3.21)]).toEqual(["99.96 %", "100.0 %", "93.8 %", "−3.2 %"]);
  });
  it("durations use two units", () => {
    expect([0.52, 59.6, 245, 3600 * 3 + 1200, 86_400 * 2 + 3600 * 4].map(duration)).toEqual([
      "0.5 s",
      "1 min 00 s",
      "4 min 05 s",
      "3 h 20 min",
      "2 d 4 h",
    ]);
  });
  it("counts, rates and plurals", () => {
    expect([count(1_234_567), rate(94.91), rate(3.12), plural(1, "disk"), plural(2, "disk")]).toEqual([
      "1,234,567",
      "95 MB/s",
      "3.1 MB/s",
      "1 disk",
      "2 disks",
    ]);
  });
});

describe("time", () => {
  it("is in order of year, month, day", () => {
    expect(minute("2026-11-21T06:04:09.123Z")).toBe("2026-11-21 06:04");
    expect(second("2026-11-21T06:04:09.123Z")).toBe("2026-11-21 06:04:09");
    expect([minute(""), minute(null), minute("nonsense")]).toEqual(["–", "–", "–"]);
  });
  it("tells how long ago", () => {
    const now = Date.parse("2026-11-21T12:00:00Z");
    const ago = (iso: string) => relative(iso, now);
    expect(ago("2026-11-21T11:59:55Z")).toBe("now");
    expect(ago("2026-11-21T11:57:00Z")).toBe("3 min ago");
    expect(ago("2026-11-20T20:00:00Z")).toBe("16 h ago");
    expect(ago("2026-11-24T12:00:00Z")).toBe("in 3 d");
  });
});

describe("the glossary", () => {
  it("explains every term in a sentence and names a unit for every number", () => {
    for (const term of TERMS) {
      const { label, text } = DEFINITIONS[term];
      expect(label.length, term).toBeGreaterThan(1);
      expect(text, term).toMatch(/[.)]$/);
    }
    for (const term of TERMS.filter((name) => name.endsWith("bytes"))) {
      expect(DEFINITIONS[term], term).toHaveProperty("unit");
    }
  });
});
