/** Parts of a whole in one bar, and progress. */

import type { Term } from "../format/definitions";
import { bytes, exactBytes } from "../format/bytes";
import { share } from "../format/numbers";
import { TermLabel } from "../components/Value";

export interface Part {
  term: Term;
  value: number;
  color: "blue" | "teal" | "amber" | "violet" | "grey" | "empty";
}

/** One bar, its parts named below. */
export function Meter({ label, parts }: { label: string; parts: readonly Part[] }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  return (
    <div className="meter">
      <div className="meter-bar" role="img" aria-label={`${label}: ${parts.map((part) => `${part.term.replaceAll("_", " ")} ${share(part.value, whole)}`).join(", ")}`}>
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
