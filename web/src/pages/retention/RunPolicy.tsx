/** Runs a policy: first a dry run with the rule that keeps each restore point, then, if that is wanted, for good. */

import { useState } from "react";

import { useDryRun, useRunPolicy } from "../../api/retention";
import type { Decision, Policy, PolicyRun } from "../../api/schema";
import { Dialog } from "../../components/Dialog";
import { Async, ErrorNote } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Fact, Facts } from "../../components/Stat";
import { Badge } from "../../components/Status";
import { count, plural } from "../../format/numbers";
import { minute, second } from "../../format/time";
import { scopeOf } from "./rules";

/** Drawn at once; more on request. */
const STEP = 100;

const COLUMNS: SimpleColumn<Decision>[] = [
  { id: "vm", term: "vm", render: (each) => each.vm },
  {
    id: "started",
    header: "Restore point",
    render: (each) => (
      <span className="nowrap" data-exact={`${second(each.started)}, ${each.id}`}>
        {minute(each.started)}
      </span>
    ),
  },
  { id: "keep", header: "Becomes", render: (each) => (each.keep ? <Badge tone="good" icon="check">kept</Badge> : <Badge tone="bad" icon="trash">deleted</Badge>) },
  { id: "reasons", term: "kept_by", render: (each) => (each.keep ? each.reasons.join(", ") : <span className="muted">no rule</span>) },
];

export function RunPolicy({ policy, onClose }: { policy: Policy; onClose: () => void }) {
  const dry = useDryRun(policy.id);
  const run = useRunPolicy(policy.id);
  return (
    <Dialog title={`Run ${policy.name}`} drawer pending={run.isPending} onClose={onClose}>
      <div className="drawer-content">
        <p>
          {scopeOf(policy)} in the namespace {policy.namespace}
        </p>
        {run.data === undefined ? (
          <Async query={dry} lines={8} height={300}>
            {(found) => (
              <>
                <Facts>
                  <Fact term="backups" label="Kept" kind="count" value={found.kept} />
                  <Fact term="backups" label="To be deleted" kind="count" value={found.deleted} />
                  <Fact term="freed_bytes" kind="bytes" value={found.freed_bytes} />
                </Facts>
                <div className="form-actions">
                  <button type="button" className="button" disabled={run.isPending} onClick={onClose}>
                    {found.deleted === 0 ? "Close" : "Cancel"}
                  </button>
                  {found.deleted > 0 && (
                    <button type="button" className="button button-danger" disabled={run.isPending || dry.isFetching} onClick={() => run.mutate(found.plan, { onError: () => void dry.refetch() })}>
                      <Icon name="trash" />
                      {run.isPending ? "Deleting…" : `Delete ${plural(found.deleted, "restore point")}`}
                    </button>
                  )}
                </div>
                {run.error !== null && <ErrorNote error={run.error} />}
                {policy.enabled && policy.resting_since !== null && (
                  <p className="muted">The policy rests, because the catalog was an older copy. To enable it, see that its VM and job are right, and save it.</p>
                )}
                {!policy.enabled && <p className="muted">The policy is off; this is what it would do if it were run by hand.</p>}
                <Decisions run={found} />
              </>
            )}
          </Async>
        ) : (
          <Done run={run.data} onClose={onClose} />
        )}
      </div>
    </Dialog>
  );
}

function Done({ run, onClose }: { run: PolicyRun; onClose: () => void }) {
  return (
    <>
      <p className="all-well">
        <Icon name="check" /> {plural(run.deleted, "restore point")} deleted, {count(run.kept)} kept. The space comes back with the next reclaim.
      </p>
      {run.refused > 0 && (
        <p className="break">
          {plural(run.refused, "restore point")} could not be deleted: locked or held meanwhile: {run.refused_points.join(", ")}
        </p>
      )}
      {run.skipped_vms.length > 0 && <p className="break">Skipped, with too many restore points to decide about: {run.skipped_vms.join(", ")}</p>}
      <div className="form-actions">
        <button type="button" className="button button-primary" onClick={onClose}>
          Close
        </button>
      </div>
    </>
  );
}

function Decisions({ run }: { run: PolicyRun }) {
  const [goingOnly, setGoingOnly] = useState(false);
  const [limit, setLimit] = useState(STEP);
  const rows = goingOnly ? run.decisions.filter((each) => !each.keep) : run.decisions;
  if (run.decisions.length === 0) return <p className="muted">It decides about no restore point.</p>;
  return (
    <>
      <div className="segments" role="group" aria-label="Which restore points">
        <button type="button" aria-pressed={!goingOnly} onClick={() => setGoingOnly(false)}>
          All
        </button>
        <button type="button" aria-pressed={goingOnly} onClick={() => setGoingOnly(true)}>
          To be deleted
        </button>
      </div>
      <SimpleTable caption="Decisions" columns={COLUMNS} rows={rows.slice(0, limit)} rowKey={(each) => each.id} />
      {rows.length > limit && (
        <button type="button" className="button" onClick={() => setLimit(limit + STEP)}>
          Show more
        </button>
      )}
      {run.decisions.length < run.kept + run.deleted && <p className="muted">The first {count(run.decisions.length)} are listed.</p>}
    </>
  );
}
