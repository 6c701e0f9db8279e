/** The lines of one VM's charts, from its first day on. */

import type { AttributedHistory, Series } from "../../api/schema";
import type { Line } from "../../charts/line";

export function vmLines({ days, groups }: Series): { days: string[]; size: Line[]; added: Line[] } {
  const group = groups[0];
  const values = (of: number[] | undefined) => of ?? [];
  // Days before the first backup are left out.
  const first = Math.max(0, days.findIndex((_, index) => (group?.protected[index] ?? 0) > 0 || (group?.pre_comp[index] ?? 0) > 0));
  const cut = (of: number[] | undefined) => values(of).slice(first);
  return {
    days: days.slice(first),
    size: [
      { label: "Protected", term: "protected_bytes", color: "blue", shape: "line", values: cut(group?.protected) },
      { label: "Stored", term: "vm_stored_bytes", color: "teal", shape: "area", values: cut(group?.stored) },
    ],
    added: [
      { label: "New", term: "new_bytes", color: "amber", shape: "bars", values: cut(group?.new_bytes) },
      { label: "Post-comp", term: "post_lc", color: "teal", shape: "bars", values: cut(group?.post_lc) },
    ],
  };
}

/** What it took on the days on which reclaim counted. */
export const takenLines = (days: AttributedHistory["days"]): Line[] => [
  { label: "Attributed", term: "attributed_bytes", color: "teal", shape: "area", values: days.map((day) => day.attributed_bytes) },
  { label: "Only here", term: "exclusive_bytes", color: "blue", shape: "line", values: days.map((day) => day.exclusive_bytes) },
];
