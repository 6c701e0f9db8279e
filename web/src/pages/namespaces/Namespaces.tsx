/** What each namespace takes, and what it may take. */

import { useState } from "react";

import { useNamespaces } from "../../api/queries";
import { useWho } from "../../api/session";
import type { Namespace } from "../../api/schema";
import { Card } from "../../components/Card";
import { Command } from "../../components/Command";
import { Async, Empty } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { bytes, exactBytes } from "../../format/bytes";
import { count, share } from "../../format/numbers";
import { minute, relative } from "../../format/time";
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

/** When agents proved what only they can. */
function proved(agents: NonNullable<Namespace["agents"]>): string {
  if (agents.oldest === null) return "content proved only by agents: not yet";
  const missing = agents.never_verified === 0 ? "" : `, ${count(agents.never_verified)} of ${count(agents.vms)} VMs never`;
  return `content proved only by agents: ${relative(agents.oldest)}${missing}`;
}

function State({ near, keyId, agents }: { near: readonly string[]; keyId: string | null; agents: Namespace["agents"] }) {
  return (
    <>
      {agents && (
        <span data-term="agent_verified" data-exact={agents.reminder ?? (agents.oldest === null ? "No agent has verified it yet." : minute(agents.oldest))}>
          <Badge tone={agents.reminder ? "warn" : "quiet"} icon={agents.reminder ? "warn" : "info"}>
            {proved(agents)}
          </Badge>
        </span>
      )}
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
  { id: "near", header: "State", render: (space) => <State near={space.near} keyId={space.key_id ?? null} agents={space.agents ?? null} /> },
];

/** As long as what only agents can prove was not proved for too long. */
function Reminders({ spaces }: { spaces: readonly Namespace[] }) {
  const late = spaces.filter((space) => space.agents?.reminder);
  if (late.length === 0) return null;
  return (
    <section className="note note-warn" aria-label="Verification">
      <Icon name="warn" />
      <div>
        <p className="note-title">Not verified for two weeks</p>
        <p>Only agents with the key can prove what is end-to-end encrypted. Verify it at one of them, best by a timer:</p>
        {late.map((space) => space.agents && <Command key={space.name} text={space.agents.command} />)}
      </div>
    </section>
  );
}

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
      <Reminders spaces={namespaces.data?.items ?? []} />
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
