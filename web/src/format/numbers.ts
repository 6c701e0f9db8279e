/** Counts, factors, shares, rates and durations in their display format. */

const NOTHING = "–";

type Maybe = number | null | undefined;

const absent = (value: Maybe): value is null | undefined =>
  value === null || value === undefined || !Number.isFinite(value);

/** Whole numbers with groups of three. */
export function count(value: Maybe): string {
  return absent(value) ? NOTHING : Math.round(value).toLocaleString("en-US");
}

/** `2.34×`; a dash when nothing was stored. */
export function factor(value: Maybe): string {
  if (absent(value)) return NOTHING;
  return `${value < 1000 ? value.toFixed(2) : Math.round(value).toLocaleString("en-US")}×`;
}

/** Percent with one decimal. Less than 100 is never rounded up to 100. */
export function percent(value: Maybe): string {
  if (absent(value)) return NOTHING;
  if (value < 100 && value > 99.9) return `${(Math.floor(value * 100) / 100).toFixed(2)} %`;
  return `${value.toFixed(1).replace("-", "−")} %`;
}

/** A share between 0 and 1 as a percentage. */
export const share = (part: number, whole: number): string => (whole > 0 ? percent((100 * part) / whole) : NOTHING);

/** `1.2 s`, `4 min 05 s`, `3 h 20 min`, `2 d 4 h`. */
export function duration(seconds: Maybe): string {
  if (absent(seconds)) return NOTHING;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** Megabytes (10⁶) a second. */
export function rate(megabytes: Maybe): string {
  if (absent(megabytes)) return NOTHING;
  return `${megabytes < 10 ? megabytes.toFixed(1) : Math.round(megabytes).toLocaleString("en-US")} MB/s`;
}

/** US dollars: two decimals, or four below a cent. What costs something never shows as nothing. */
export function dollars(value: Maybe): string {
  if (absent(value)) return NOTHING;
  const step = value > 0 && value < 0.01 ? 10_000 : 100;
  // A hair less, so that what a binary fraction adds to a whole number does not count as one more.
  const up = Math.max(0, Math.ceil(value * step - 1e-6)) / step;
  return `$${up.toLocaleString("en-US", { minimumFractionDigits: step === 100 ? 2 : 4 })}`;
}

/** `1 disk`, `2 disks`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
