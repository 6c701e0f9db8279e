/** One row in full: what happened in words, then every column with its definition. */

import { Link } from "wouter";

import { useDetail } from "../../api/queries";
import type { DetailWithExplanation } from "../../api/schema";
import { Sparkline } from "../../charts/Sparkline";
import { Dialog } from "../../components/Dialog";
import { ErrorNote, Skeleton } from "../../components/Feedback";
import { vmPath } from "../../components/location";
import { FindingBadge, StatusBadge } from "../../components/Status";
import { Fact, Facts } from "../../components/Stat";
import { exact, show } from "../../components/Value";
import { definition } from "../../format/definitions";
import { DETAIL_COLUMNS } from "./columns";

export function Drawer({ id, onClose }: { id: string; onClose: () => void }) {
  const query = useDetail(id);
  const row = query.data;
  return (
    <Dialog drawer title={row === undefined ? "Disk run" : `${row.vm} · ${row.disk}`} onClose={onClose}>
      {row !== undefined ? (
        <Contents row={row} />
      ) : query.error !== null ? (
        <ErrorNote error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        <Skeleton lines={12} height={600} />
      )}
    </Dialog>
  );
}

function Contents({ row }: { row: DetailWithExplanation }) {
  const { sentences, usual, extents } = row.explanation;
  return (
    <div className="drawer-content">
      <p className="drawer-badges">
        <StatusBadge status={row.status} />
        {row.finding !== null && row.finding.kind !== "failed" && <FindingBadge finding={row.finding} />}
        <Sparkline values={row.trend} />
        <Link href={vmPath(row.namespace, row.vm)}>Go to this VM</Link>
      </p>
      <div className="explanation">
        {sentences.map((sentence) => (
          <p key={sentence}>{sentence}</p>
        ))}
        {row.error !== "" && !sentences.some((sentence) => sentence.includes(row.error)) && <pre tabIndex={0}>{row.error}</pre>}
      </div>
      <h3>{usual.new_bytes === null ? "This run" : `Compared with the last ${usual.rows} runs of this disk`}</h3>
      <Facts>
        <Fact term="new_bytes" kind="bytes" value={row.new_bytes} />
        <Fact term="usual_new" kind="bytes" value={usual.new_bytes} />
        <Fact term="bytes/post_lc" kind="factor" value={row["bytes/post_lc"]} />
        <Fact term="usual_factor" kind="factor" value={usual.total_factor} />
        {extents !== null && (
          <>
            <Fact term="extents_changed" kind="count" value={extents.changed} />
            <Fact term="extents_first" kind="count" value={extents.changed_first_time} />
            <Fact term="extents_written" kind="count" value={extents.newly_written} />
          </>
        )}
      </Facts>
      <h3>All columns</h3>
      <dl className="columns-list">
        {DETAIL_COLUMNS.filter((column) => column.id !== "finding" && column.id !== "trend").map((column) => {
          const value = column.value(row);
          const digits = exact(column.kind, value, column.term);
          return (
            <div key={column.id}>
              <dt>
                {definition(column.term).label} <code>{column.id}</code>
              </dt>
              <dd>
                <span className="columns-value">{show(column.kind, value)}</span>
                {digits !== "" && digits !== show(column.kind, value) && <span className="muted">{digits}</span>}
              </dd>
              <dd className="columns-text">{definition(column.term).text}</dd>
            </div>
          );
        })}
      </dl>
    </div>
  );
}
