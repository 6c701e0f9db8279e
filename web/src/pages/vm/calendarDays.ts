/** Restore points and failures of a VM by day. */

import type { Backup, DetailItem } from "../../api/schema";
import type { CalendarDay } from "../../charts/Calendar";
import { localDay } from "../../format/time";

export interface BackupDay extends CalendarDay {
  ids: string[];
}

/** Restore points, and disks whose run failed, by the local day on which they finished. */
export function calendarDays(points: readonly Backup[], failures: readonly Pick<DetailItem, "finished">[]): Map<string, BackupDay> {
  const days = new Map<string, BackupDay>();
  const entry = (time: string) => {
    const day = localDay(time);
    const found = days.get(day) ?? { points: 0, new_bytes: 0, failed: 0, ids: [] };
    days.set(day, found);
    return found;
  };
  for (const point of points) {
    const day = entry(point.finished);
    day.points += 1;
    day.new_bytes += point.new_bytes;
    day.ids.push(point.id);
  }
  for (const row of failures) entry(row.finished).failed += 1;
  return days;
}
