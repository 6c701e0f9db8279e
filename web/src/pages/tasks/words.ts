/** Words of tasks. */

import type { Task, TaskKind, TaskStatus } from "../../api/schema";
import { bytes } from "../../format/bytes";
import type { Term } from "../../format/definitions";
import { count, duration } from "../../format/numbers";

export const KINDS: Record<TaskKind, { term: Term; text: string }> = {
  reclaim: { term: "reclaim", text: "Free what nothing needs any more" },
  scrub: { term: "scrub", text: "Read and check everything" },
  verify: { term: "verification", text: "Read the newest restore points back" },
  policy: { term: "policy_run", text: "Apply a retention policy" },
  audit: { term: "bucket_audit", text: "Compare the bucket with what is known of it" },
  thaw: { term: "thaw", text: "Bring back from the archive what a restore needs" },
};

/** Whether it is still to be done. */
export const isOpen = (status: TaskStatus): boolean => status !== "done" && status !== "failed" && status !== "cancelled";

const GLOSSARY: Partial<Record<string, Term>> = {
  cleanable_bytes: "cleanable_bytes",
  freed_bytes: "reclaimed_bytes",
  freeable_bytes: "freed_bytes",
};

export interface Figure {
  name: string;
  label: string;
  text: string;
  term: Term | undefined;
}

/** What says most, first; everything else follows in the server's order. */
const FIRST = ["freed_bytes", "cleanable_bytes", "containers_deleted", "containers_written", "deleted", "kept", "sound", "unsound"];

/** What is clearer than the name. */
const LABELS: Partial<Record<string, string>> = {
  dead_bytes: "Needed by no restore point",
  deleted_bytes: "In deleted containers",
  copied_bytes: "Copied forward",
  containers: "Containers looked at",
  containers_held: "Containers in use by backups",
  small_merged: "Small containers merged",
  squeezed_bytes_before: "Before compressing again",
  squeezed_bytes_after: "After compressing again",
  moved_containers: "Containers in the bucket alone now",
  moved_bytes: "Room gained by moving",
  moving_failed: "Moving ended early",
  far_containers: "Containers in the bucket alone, not read",
  damaged_parity: "Groups with damaged parity",
  far_restore_points: "Restore points with data in the bucket alone, not read whole",
  total_bytes: "In the archive",
  asked_objects: "Objects asked for",
  asked_bytes: "Asked for",
  readable_objects: "Objects that can be read",
  references: "References followed",
  marked_ms: "Time of marking",
  incomplete: "Could not be followed",
};

const rank = (name: string): number => {
  const place = FIRST.indexOf(name);
  return place < 0 ? FIRST.length : place;
};

/** What a task tells in numbers: names that end in `bytes` are bytes, those in `_ms` times, others counts. */
export function figuresOf(figures: Task["figures"]): Figure[] {
  // What a dry run did not do is no figure of it.
  const isDry = figures["dry_run"] === true;
  const shown = Object.entries(figures).filter(([name, value]) => name !== "dry_run" && !(isDry && (value === 0 || name === "freed_bytes")));
  return shown
    .toSorted(([a], [b]) => rank(a) - rank(b))
    .flatMap(([name, value]) => {
      const text = figure(name, value);
      if (text === null) return [];
      const words = name.replace(/_(bytes|ms)$/, "").replaceAll("_", " ");
      return [{ name, label: LABELS[name] ?? words.charAt(0).toUpperCase() + words.slice(1), text, term: GLOSSARY[name] }];
    });
}

function figure(name: string, value: unknown): string | null {
  if (typeof value === "number") {
    if (/(^|_)bytes(_|$)/.test(name)) return bytes(value);
    return name.endsWith("_ms") ? duration(value / 1000) : count(value);
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" && value !== "" ? value : null;
}

/** How far it is, in words; empty when it does not tell. */
export function progressOf({ progress: { done, total, unit } }: Task): string {
  if (unit === "") return "";
  const say = unit === "bytes" ? bytes : count;
  const named = unit === "bytes" ? "" : ` ${unit}`;
  return total > 0 ? `${say(done)} of ${say(total)}${named}` : `${say(done)}${named}`;
}
