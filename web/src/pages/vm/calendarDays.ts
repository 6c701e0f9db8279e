/** Restore points and failures of a VM by day. */

import type { Backup, Series } from "../../api/schema";
import type { CalendarDay } from "../../charts/Calendar";
import { localDay } from "../../format/time";

export interface BackupDay extends CalendarDay {
  ids: string[];
}

/** Restore points count for the local day on which they finished, failures for the server's (UTC) day. */
export function calendarDays(points: readonly Backup[], series: Series | undefined): Map<string, BackupDay> {
  const days = new Map<string, BackupDay>();
  const entry = (day: string) => {
    const found = days.get(day) ?? { points: 0, new_bytes: 0, failed: 0, ids: [] };
    days.set(day, found);
    return found;
  };
  for (const point of points) {
    const day = entry(localDay(point.finished));
    day.points += 1;
    day.new_bytes += point.new_bytes;
    day.ids.push(point.id);
  }
  const failed = series?.groups[0]?.failed ?? [];
  series?.days.forEach((day, index) => {
    const count = failed[index] ?? 0;
    if (count > 0) entry(day).failed += count;
  });
  return days;
}
