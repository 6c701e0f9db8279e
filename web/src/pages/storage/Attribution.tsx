/** What fills the repository: whose the stored bytes are, exactly, as the last round of reclaim counted them. */

import { useState } from "react";
import { Link } from "wouter";

import { useAttribution } from "../../api/queries";
import type { AttributedBy, AttributedGroup, Attribution as Answer } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { useNamespace, vmPath } from "../../components/location";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Value } from "../../components/Value";
import { bytes } from "../../format/bytes";
import { count, share } from "../../format/numbers";
import { minute } from "../../format/time";

const BY: readonly [by: AttributedBy, label: string][] = [
  ["vm", "By VM"],
  ["job", "By job"],
  ["namespace", "By namespace"],
];

/** The server gives no more. */
const MOST = 1000;
/** Drawn at once; more on request. */
const STEP = 20;

export function Attribution() {
  const namespace = useNamespace();
  const [by, setBy] = useState<AttributedBy>("vm");
  const [limit, setLimit] = useState(STEP);
  const query = useAttribution({ by, namespace, limit: MOST });
  return (
    <Card
      title="What fills the repository"
      className="wide"
      hint="Every stored byte of disks' data, exactly once."
      actions={
        <div className="segments" role="group" aria-label="Add up">
          {BY.map(([each, label]) => (
            <button key={each} type="button" aria-pressed={by === each} onClick={() => setBy(each)}>
              {label}
            </button>
          ))}
        </div>
      }
    >
      <Async query={query} height={200}>
        {(answer) =>
          answer.at === null ? (
            <Empty title="Not counted yet">The first reclaim counts it.</Empty>
          ) : (
            <>
              <p>
                <Value term="live_bytes" kind="bytes" value={answer.live_bytes} /> in use on {minute(answer.at)}, counted by reclaim.
                {!answer.is_complete && " Some recipes could not be read, so what they refer to is missing here."}
              </p>
              <SimpleTable caption="What fills the repository" columns={columns(by, answer.live_bytes)} rows={answer.items.slice(0, limit)} rowKey={(row) => `${row.namespace}/${row.name}`} />
              {answer.items.length >= MOST && (
                <p className="muted">
                  The {count(MOST)} largest are listed; all others, and what was deleted since, have {bytes(unlisted(answer))} together.
                </p>
              )}
              {answer.items.length > limit && (
                <button type="button" className="button" onClick={() => setLimit(limit + STEP)}>
                  Show more
                </button>
              )}
            </>
          )
        }
      </Async>
    </Card>
  );
}

/** In use, and in none of the rows. */
const unlisted = ({ live_bytes, items }: Answer): number => Math.max(0, items.reduce((left, row) => left - row.attributed_bytes, live_bytes));

function columns(by: AttributedBy, live: number): SimpleColumn<AttributedGroup>[] {
  const name: SimpleColumn<AttributedGroup> = {
    id: "name",
    term: by,
    render: (row) => (by === "vm" ? <Link href={vmPath(row.namespace, row.name)}>{row.name}</Link> : row.name),
  };
  return [
    name,
    ...(by === "namespace" ? [] : [{ id: "namespace", term: "namespace", render: (row) => row.namespace } satisfies SimpleColumn<AttributedGroup>]),
    { id: "share", header: "Share", render: (row) => <Share part={row.attributed_bytes} whole={live} /> },
    { id: "attributed", term: "attributed_bytes", kind: "bytes", value: (row) => row.attributed_bytes },
    { id: "exclusive", term: "exclusive_bytes", kind: "bytes", value: (row) => row.exclusive_bytes },
    { id: "shared", term: "shared_bytes", kind: "bytes", value: (row) => Math.max(0, row.attributed_bytes - row.exclusive_bytes) },
    { id: "points", term: "backups", kind: "count", value: (row) => row.restore_points },
  ];
}

/** A bar and the share in numbers. */
function Share({ part, whole }: { part: number; whole: number }) {
  return (
    <span className="share">
      <span className="share-track" aria-hidden="true">
        <span className="share-bar" style={{ width: `${whole > 0 ? (100 * part) / whole : 0}%` }} />
      </span>
      {share(part, whole)}
    </span>
  );
}
