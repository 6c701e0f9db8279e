/** What is out of line with the history of its VM, the worst first; nothing where all is as usual. */

import { Link } from "wouter";

import { useFindings } from "../../api/queries";
import type { Finding, FindingKind } from "../../api/schema";
import { link } from "../../components/location";
import { FindingBadge } from "../../components/Status";
import { bytes } from "../../format/bytes";
import { filterOf, type View } from "./view";

/** Of these the rest is a number. */
const SHOWN = 5;

/** Without a window, the last week: what is older was seen, or is in a window asked for. */
const RECENT = "7d";

/** What is as it must be, and marks no row. */
export const isPlain = (kind: FindingKind): boolean => kind === "first_full" || kind === "clones" || kind === "read_again";

export function Findings({ view }: { view: View }) {
  const filter = filterOf(view);
  const hasWindow = filter.finished_since !== "" || filter.finished_until !== "" || view.run !== "";
  const query = useFindings({ ...filter, finished_since: hasWindow ? filter.finished_since : RECENT, limit: SHOWN });
  const found = query.data;
  if (found === undefined || found.items.length === 0) return null;
  return (
    <section className="findings" aria-label="Out of line">
      <ul className="events">
        {found.items.map((finding) => (
          <li key={[finding.namespace, finding.job, finding.vm, finding.since, finding.kind].join("\u0000")}>
            <FindingBadge finding={finding} />
            <div>
              <Link href={link("/details", rowsOf(finding))}>{finding.text}</Link>
              <p>{finding.cause}</p>
            </div>
            <span className="muted nowrap">{finding.more_bytes > 0 && `+ ${bytes(finding.more_bytes)}`}</span>
          </li>
        ))}
      </ul>
      {found.total > found.items.length && <p className="muted">and {found.total - found.items.length} more</p>}
    </section>
  );
}

/** The filter that leaves the rows it tells of, and those before them. */
const rowsOf = ({ namespace, job, vm }: Finding): Record<string, string> => (vm === "" ? { namespace, job } : { namespace, vm });
