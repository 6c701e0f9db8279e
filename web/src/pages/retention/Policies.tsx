/** The policies: for whom each is, what it keeps, when it runs. */

import type { Policy } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { plural } from "../../format/numbers";
import { minute, relative, second } from "../../format/time";
import { inWords, scopeOf } from "./rules";

interface PoliciesProps {
  policies: readonly Policy[];
  mayRun: boolean;
  mayEdit: boolean;
  onRun: (policy: Policy) => void;
  onEdit: (policy: Policy) => void;
  onRemove: (policy: Policy) => void;
  onSimulate: (policy: Policy) => void;
}

export function Policies({ policies, mayRun, mayEdit, onRun, onEdit, onRemove, onSimulate }: PoliciesProps) {
  const columns: SimpleColumn<Policy>[] = [
    {
      id: "name",
      term: "policy",
      render: (policy) => (
        <span className="break" data-exact={`${policy.id}, changed ${second(policy.updated)} by ${policy.updated_by}`}>
          {policy.name}
        </span>
      ),
    },
    {
      id: "scope",
      term: "policy_scope",
      render: (policy) => (
        <>
          {scopeOf(policy)} <span className="muted">in {policy.namespace}</span>
        </>
      ),
    },
    { id: "keeps", term: "keep_rules", render: (policy) => inWords(policy.rules) },
    {
      id: "schedule",
      term: "calendar",
      render: (policy) =>
        policy.schedule === "" ? (
          <span className="muted">by hand</span>
        ) : (
          <>
            <code>{policy.schedule}</code> <span className="muted">{policy.time_zone || "UTC"}</span>
          </>
        ),
    },
    {
      id: "next",
      term: "next_run",
      render: (policy) =>
        policy.next_run === null ? (
          <span className="muted">–</span>
        ) : (
          <span className="nowrap" data-exact={minute(policy.next_run)}>
            {relative(policy.next_run)}
          </span>
        ),
    },
    { id: "lock", term: "lock_days", render: (policy) => (policy.lock_days === 0 ? <span className="muted">no</span> : plural(policy.lock_days, "day")) },
    {
      id: "archive",
      term: "archive_after_days",
      render: (policy) => (policy.archive_after_days === null ? <span className="muted">as set</span> : `after ${plural(policy.archive_after_days, "day")}`),
    },
    {
      id: "state",
      header: "State",
      render: (policy) => <State policy={policy} />,
    },
  ];
  const actions: SimpleColumn<Policy> = {
    id: "actions",
    header: "Actions",
    render: (policy) => (
      <span className="row-actions">
        <Action word="Run…" policy={policy} onClick={onRun} />
        <Action word="Simulate" policy={policy} onClick={onSimulate} />
        {mayEdit && <Action word="Edit" policy={policy} onClick={onEdit} />}
        {mayEdit && <Action word="Remove" policy={policy} onClick={onRemove} danger />}
      </span>
    ),
  };
  return <SimpleTable caption="Policies" columns={mayRun ? [...columns, actions] : columns} rows={policies} rowKey={(policy) => policy.id} />;
}

function State({ policy }: { policy: Policy }) {
  if (!policy.enabled) return <Badge tone="quiet" icon="stop">off</Badge>;
  if (policy.resting_since === null) return <Badge tone="good" icon="check">on</Badge>;
  return (
    <span data-exact={`Rests since ${second(policy.resting_since)}, when the catalog was found to be an older copy: names and rules may have changed since. It deletes nothing until it is edited and saved.`}>
      <Badge tone="warn" icon="stop">rests</Badge>
    </span>
  );
}

function Action({ word, policy, onClick, danger = false }: { word: string; policy: Policy; onClick: (policy: Policy) => void; danger?: boolean }) {
  return (
    <button
      type="button"
      className={`button button-small ${danger ? "button-danger" : ""}`}
      aria-label={`${word.replace("…", "")} ${policy.name}`}
      onClick={() => onClick(policy)}
    >
      {word}
    </button>
  );
}
