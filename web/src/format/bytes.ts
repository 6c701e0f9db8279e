/** Bytes, rounded and exact. */

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;

/** Binary units, three significant digits; the same text as the command line prints. */
export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined || !Number.isFinite(count)) return "–";
  const sign = count < 0 ? "−" : "";
  let value = Math.abs(count);
  if (value < 1024) return `${sign}${Math.round(value)} B`;
  value /= 1024;
  let unit: string = UNITS[0];
  for (const next of UNITS.slice(1)) {
    if (value < 999.5) break;
    value /= 1024;
    unit = next;
  }
  return `${sign}${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
}

/** Every digit. */
export function exactBytes(count: number): string {
  return `${Math.round(count).toLocaleString("en-US")} bytes`;
}

/** Steps that make round ticks on an axis of bytes: 1, 2, 4, … of every unit, then halves for fine scales. */
export const BYTE_STEPS: number[] = Array.from({ length: 64 }, (_, power) => 2 ** power);

/** A tick on an axis: no more digits than the tick needs. */
export function byteTick(count: number): string {
  if (count === 0) return "0";
  let value = count;
  let unit = "B";
  for (const next of UNITS) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${Number(value.toPrecision(4))} ${unit}`;
}
