/** What each namespace takes, and what it may take. */

import { useState } from "react";

import { useNamespaces } from "../../api/queries";
import { useWho } from "../../api/session";
import type { Namespace } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { bytes, exactBytes } from "../../format/bytes";
import { count, share } from "../../format/numbers";
import { EditQuota } from "./EditQuota";

interface UseProps {
  used: number;
  limit: number | null;
  /** How a number reads, and how exactly. */
  text: (value: number) => string;
  exact: (value: number) => string;
}

/** `used of limit`, and how much that is. */
function Use({ used, limit, text, exact }: UseProps) {
  if (limit === null) return <span data-exact={exact(used)}>{text(used)}</span>;
  return (
    <span className="nowrap" data-exact={`${exact(used)} of ${exact(limit)}`}>
      {text(used)} of {text(limit)} <span className="muted">{share(used, limit)}</span>
    </span>
  );
}

function State({ near, keyId }: { near: readonly string[]; keyId: string | null }) {
  return (
    <>
      {keyId !== null && (
        <span className="nowrap" data-exact={`Agents encrypt it with key ${keyId}. The server cannot read it: only 'holdfast verify' at an agent proves it.`}>
          <Badge tone="quiet" icon="lock">
            end-to-end encrypted
          </Badge>
        </span>
      )}
      {near.length > 0 && (
        <Badge tone="warn" icon="warn">
          near its limit of {near.join(", ")}
        </Badge>
      )}
    </>
  );
}

const inBytes = { text: bytes, exact: exactBytes };
const inNumbers = { text: count, exact: count };

const COLUMNS: SimpleColumn<Namespace>[] = [
  { id: "name", header: "Namespace", render: (space) => space.name },
  { id: "stored", header: "Stored", render: ({ usage, quota }) => <Use used={usage.stored_bytes} limit={quota.stored_bytes ?? null} {...inBytes} /> },
  { id: "protected", header: "Protected", render: ({ usage, quota }) => <Use used={usage.protected_bytes} limit={quota.protected_bytes ?? null} {...inBytes} /> },
  { id: "points", header: "Restore points", render: ({ usage, quota }) => <Use used={usage.restore_points} limit={quota.restore_points ?? null} {...inNumbers} /> },
  { id: "sessions", header: "Backups today", render: ({ usage, quota }) => <Use used={usage.sessions_today} limit={quota.sessions_per_day ?? null} {...inNumbers} /> },
  { id: "near", header: "State", render: (space) => <State near={space.near} keyId={space.key_id ?? null} /> },
];

export default function Namespaces() {
  const namespaces = useNamespaces();
  const mayEdit = useWho().actions.includes("manage_tokens");
  const [editing, setEditing] = useState<Namespace | null>(null);
  const edit: SimpleColumn<Namespace> = {
    id: "edit",
    header: "Quota",
    render: (space) => (
      <button type="button" className="button button-small" aria-label={`Set the quota of ${space.name}`} onClick={() => setEditing(space)}>
        Set
      </button>
    ),
  };
  return (
    <div className="page page-namespaces">
      <h1>Namespaces</h1>
      <Card title="Quotas" hint="At a limit, new data is refused before it is sent; backups without new data still work.">
        <Async query={namespaces} height={200}>
          {(page) =>
            page.items.length === 0 ? (
              <Empty title="Nothing yet" />
            ) : (
              <SimpleTable caption="Quotas" columns={mayEdit ? [...COLUMNS, edit] : COLUMNS} rows={page.items} rowKey={(space) => space.name} />
            )
          }
        </Async>
      </Card>
      {editing !== null && <EditQuota namespace={editing} onClose={() => setEditing(null)} />}
    </div>
  );
}
