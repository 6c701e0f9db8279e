/** Limits as people write them. */

export type Unit = "bytes" | "count";

const FACTORS: readonly [unit: string, factor: number][] = [
  ["tb", 1e12],
  ["gb", 1e9],
  ["mb", 1e6],
  ["kb", 1e3],
  ["tib", 2 ** 40],
  ["gib", 2 ** 30],
  ["mib", 2 ** 20],
  ["kib", 2 ** 10],
  ["b", 1],
  ["", 1],
];

/** `null`: no limit; `undefined`: not a limit. */
export function parseLimit(text: string, unit: Unit): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const [, digits, suffix] = /^(\d+)\s*([a-z]*)$/i.exec(trimmed) ?? [];
  if (digits === undefined || suffix === undefined) return undefined;
  const factor = unit === "bytes" ? FACTORS.find(([name]) => name === suffix.toLowerCase())?.[1] : suffix === "" ? 1 : undefined;
  const limit = factor === undefined ? Number.NaN : Number(digits) * factor;
  return Number.isSafeInteger(limit) ? limit : undefined;
}

/** Text that `parseLimit` reads as the same limit. */
export function writeLimit(limit: number | null, unit: Unit): string {
  if (limit === null) return "";
  const fits = ([name, factor]: readonly [string, number]) => name !== "" && limit % factor === 0;
  const [name, factor] = (unit === "bytes" && limit > 0 ? FACTORS.find(fits) : undefined) ?? ["", 1];
  return `${limit / factor}${name.toUpperCase().replace("I", "i")}`;
}
