/** The tokens; disabled, expired and revoked ones are shown on request. */

import { useState } from "react";

import type { TokenRecord } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { plural } from "../../format/numbers";
import { minute, relative, second } from "../../format/time";

export type TokenState = "usable" | "joining" | "disabled" | "expired" | "revoked";

export function stateOf(token: TokenRecord, nowMs = Date.now()): TokenState {
  if (token.revoked !== null) return "revoked";
  if (token.disabled !== null) return "disabled";
  const ended = (iso: string | null) => iso !== null && Date.parse(iso) <= nowMs;
  if (ended(token.expires) || ended(token.joining_until)) return "expired";
  if (token.joining_until !== null) return "joining";
  return "usable";
}

function State({ token }: { token: TokenRecord }) {
  const state = stateOf(token);
  if (state === "revoked") return <Badge tone="bad" icon="stop">revoked</Badge>;
  if (state === "disabled") return <Badge tone="warn" icon="stop">disabled</Badge>;
  if (state === "expired") return <Badge tone="warn" icon="clock">expired</Badge>;
  if (state === "joining") return <Badge tone="warn" icon="clock">joining</Badge>;
  return <Badge tone="good" icon="check">{token.current ? "yours" : "active"}</Badge>;
}

export function Tokens({ tokens, onRevoke }: { tokens: readonly TokenRecord[]; onRevoke: (token: TokenRecord) => void }) {
  const [all, setAll] = useState(false);
  const lasts = (token: TokenRecord) => ["usable", "joining"].includes(stateOf(token));
  const usable = tokens.filter(lasts);
  const rest = tokens.length - usable.length;
  const columns: SimpleColumn<TokenRecord>[] = [
    { id: "name", header: "Name", render: (token) => <span className="token-name" data-exact={token.id}>{token.name}</span> },
    { id: "state", header: "State", render: (token) => <State token={token} /> },
    { id: "role", term: "role", render: (token) => token.role },
    { id: "namespaces", term: "scope", render: (token) => (token.namespaces.length === 0 ? <span className="muted">all</span> : token.namespaces.join(", ")) },
    { id: "owner", term: "token_owner", render: (token) => token.owner },
    { id: "vms", term: "vm_patterns", render: (token) => (token.vm_patterns.length === 0 ? <span className="muted">all</span> : token.vm_patterns.join(", ")) },
    { id: "created", term: "created", render: (token) => <Time iso={token.created} /> },
    { id: "expires", term: "expires", render: (token) => (token.expires === null ? <span className="muted">never</span> : <Time iso={token.expires} />) },
    { id: "last_used", term: "last_used", render: (token) => (token.last_used === null ? <span className="muted">never</span> : <span className="nowrap" data-exact={second(token.last_used)}>{relative(token.last_used)}</span>) },
    {
      id: "revoke",
      header: "Revoke",
      render: (token) =>
        lasts(token) ? (
          <button type="button" className="button button-small button-danger" aria-label={`Revoke ${token.name}`} onClick={() => onRevoke(token)}>
            Revoke
          </button>
        ) : null,
    },
  ];
  return (
    <>
      <SimpleTable caption="Tokens" columns={columns} rows={all ? tokens : usable} rowKey={(token) => token.id} />
      {rest > 0 && (
        <button type="button" className="button button-small" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? "Hide tokens that cannot be used" : `Show ${plural(rest, "token")} that cannot be used`}
        </button>
      )}
    </>
  );
}

const Time = ({ iso }: { iso: string }) => (
  <span className="nowrap" data-exact={second(iso)}>
    {minute(iso)}
  </span>
);
