/** Who did what, newest first. */

import { useAudit } from "../../api/queries";
import type { AuditEntry } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { count } from "../../format/numbers";
import { minute, second } from "../../format/time";

/** The time; of several events that one entry counts, from the first to the last. */
function When({ entry }: { entry: AuditEntry }) {
  const exact = entry.count === 1 ? second(entry.at) : `${second(entry.at)} to ${second(entry.last_at)}`;
  return (
    <span className="nowrap" data-exact={exact}>
      {minute(entry.at)}
      {minute(entry.last_at) !== minute(entry.at) && ` – ${minute(entry.last_at)}`}
    </span>
  );
}

const COLUMNS: SimpleColumn<AuditEntry>[] = [
  { id: "at", header: "When", render: (entry) => <When entry={entry} /> },
  { id: "who", header: "Who", render: (entry) => entry.who },
  { id: "action", header: "Action", render: (entry) => <code>{entry.action}</code> },
  { id: "count", header: "Times", render: (entry) => <span className={entry.count === 1 ? "muted" : undefined}>{count(entry.count)}</span> },
  { id: "object", header: "Object", render: (entry) => <span className="break">{entry.object}</span> },
  { id: "detail", header: "Detail", render: (entry) => <span className="break">{entry.detail}</span> },
];

export function Audit() {
  const audit = useAudit();
  const entries = audit.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Card title="Audit log" hint="Logins, tokens, backups and deletions, newest first.">
      <Async query={audit} lines={6}>
        {() =>
          entries.length === 0 ? (
            <Empty title="Nothing yet" />
          ) : (
            <SimpleTable caption="Audit log" columns={COLUMNS} rows={entries} rowKey={(entry) => entry.id} />
          )
        }
      </Async>
      {audit.hasNextPage && (
        <button type="button" className="button" disabled={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
          {audit.isFetchingNextPage ? "Loading…" : "Load older entries"}
        </button>
      )}
    </Card>
  );
}
