/** Parts of a whole in one bar, and progress. */

import type { FileSystem } from "../api/schema";
import { definition, type Term } from "../format/definitions";
import { bytes, exactBytes } from "../format/bytes";
import { share } from "../format/numbers";
import { TermLabel } from "../components/Value";

export interface Part {
  term: Term;
  value: number;
  color: "blue" | "teal" | "amber" | "violet" | "grey" | "empty";
}

/** One bar, with a legend of its parts. */
function Meter({ label, parts }: { label: string; parts: readonly Part[] }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  return (
    <div className="meter">
      <div className="meter-bar" role="img" aria-label={`${label}: ${parts.map((part) => `${definition(part.term).label} ${share(part.value, whole)}`).join(", ")}`}>
        {parts.map((part) => (
          <span
            key={part.term}
            className={`meter-part fill-${part.color}`}
            style={{ flexGrow: part.value }}
            data-term={part.term}
            data-exact={exactBytes(part.value)}
          />
        ))}
      </div>
      <ul className="meter-legend">
        {parts.map((part) => (
          <li key={part.term}>
            <span className={`swatch swatch-area fill-${part.color}`} aria-hidden="true" />
            <TermLabel term={part.term} />
            <span className="meter-value" data-term={part.term} data-exact={exactBytes(part.value)}>
              {bytes(part.value)}
            </span>
            <span className="muted">{share(part.value, whole)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

/**
 * The repository's file system: `parts` of the repository, other files, the reserve and what backups can use. Only
 * the parts where the file system does not say how much room it has.
 */
export function FileSystemMeter({ parts, space }: { parts: readonly Part[]; space: FileSystem }) {
  const { total_bytes: total, free_bytes: free, reserve_bytes: reserve } = space;
  const ours = parts.reduce((sum, part) => sum + part.value, 0);
  const rest: Part[] =
    total === null || free === null
      ? []
      : [
          { term: "other_bytes", value: Math.max(0, total - free - ours), color: "grey" },
          { term: "reserve_bytes", value: Math.min(reserve, free), color: "amber" },
          { term: "usable_bytes", value: Math.max(0, free - reserve), color: "empty" },
        ];
  return <Meter label="File system" parts={[...parts, ...rest]} />;
}

/** How far something is. */
export function Progress({ label, done, total }: { label: string; done: number; total: number }) {
  const percent = total > 0 ? Math.min(100, (100 * done) / total) : 0;
  return (
    <div
      className="progress"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(percent)}
      aria-valuetext={`${Math.floor(percent)} %, ${bytes(done)} of ${bytes(total)}`}
    >
      <span className="progress-bar" style={{ width: `${percent}%` }} />
    </div>
  );
}
