/** Times in their display format: in the browser's time zone, in the order year, month, day. */

const NOTHING = "–";
const pad = (value: number) => String(value).padStart(2, "0");

function parse(iso: string | null | undefined): Date | null {
  if (iso === null || iso === undefined || iso === "") return null;
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** `2026-11-21` of the local day. */
export function day(date: Date): string {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** The start of a local day such as `2026-11-21`. */
export const startOfDay = (text: string): Date => new Date(`${text}T00:00:00`);

/** `2026-11-21 06:04`. */
export function minute(iso: string | null | undefined): string {
  const date = parse(iso);
  return date === null ? NOTHING : `${day(date)} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** `2026-11-21 06:04:09`. */
export function second(iso: string | null | undefined): string {
  const date = parse(iso);
  return date === null ? NOTHING : `${minute(iso)}:${pad(date.getSeconds())}`;
}

/** `3 min ago`, `in 2 d`; `now` within ten seconds. */
export function relative(iso: string | null | undefined, nowMs = Date.now()): string {
  const date = parse(iso);
  if (date === null) return NOTHING;
  const seconds = (nowMs - date.getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 10) return "now";
  const text =
    size < 90
      ? `${Math.round(size)} s`
      : size < 90 * 60
        ? `${Math.round(size / 60)} min`
        : size < 36 * 3600
          ? `${Math.round(size / 3600)} h`
          : `${Math.round(size / 86_400)} d`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** The browser's time zone, such as `Europe/Berlin`. */
export const ownZone = (): string => new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The local day so many days after a time. */
export function daysAfter(from: Date, days: number): string {
  const date = new Date(from);
  date.setDate(date.getDate() + days);
  return day(date);
}

/** The local day a time belongs to. */
export function localDay(iso: string): string {
  const date = parse(iso);
  return date === null ? "" : day(date);
}

/** Seconds since the epoch at the start of a UTC day, for the axis of a chart. */
export function dayStart(text: string): number {
  return Date.parse(`${text}T00:00:00Z`) / 1000;
}

/** `Sat 21 Nov 2026`. */
export function longDay(text: string): string {
  const date = new Date(`${text}T00:00:00Z`);
  return date.toLocaleDateString("en-GB", {
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    timeZone: "UTC",
  });
}
