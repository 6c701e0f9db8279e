/** What the last audit of the bucket said, and what is wrong there. */

import type { BucketState } from "../../api/schema";
import { Command } from "../../components/Command";
import { plural } from "../../format/numbers";
import { minute } from "../../format/time";

export function Audit({ bucket: { audit } }: { bucket: BucketState }) {
  const more = audit.flaws_count - audit.flaws.length;
  return (
    <>
      {audit.last === null ? (
        <p>The bucket was not audited yet. That happens each Sunday, or now with:</p>
      ) : (
        <p>
          {minute(audit.last.begun)}: {audit.last.verdict}
        </p>
      )}
      {audit.last === null && <Command text="holdfast-server tier audit" label="Audit" />}
      {audit.flaws_count > 0 && (
        <>
          <p className="note-title">{plural(audit.flaws_count, "object")} in the bucket {audit.flaws_count === 1 ? "is" : "are"} not as they should be</p>
          <ul>
            {audit.flaws.map((flaw) => (
              <li key={flaw.name} className="break">
                <code>{flaw.name}</code>: {flaw.what} <span className="muted">(found {minute(flaw.found)})</span>
              </li>
            ))}
          </ul>
          {more > 0 && <p className="muted">And {plural(more, "more object")}.</p>}
        </>
      )}
    </>
  );
}
