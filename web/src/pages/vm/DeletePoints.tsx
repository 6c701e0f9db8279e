/** Says what deleting restore points frees and, to those who may delete, asks before it deletes them for good. */

import { useState, type SubmitEvent } from "react";

import { useDeletePoints, useFreed } from "../../api/retention";
import type { Backup } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { Async, ErrorNote } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { Fact, Facts } from "../../components/Stat";
import { KeptBadges } from "../../components/Status";
import { plural } from "../../format/numbers";
import { minute } from "../../format/time";

interface DeletePointsProps {
  points: readonly Backup[];
  /** Else it only says what it would free. */
  mayDelete: boolean;
  onClose: () => void;
  onDeleted: () => void;
}

export function DeletePoints({ points, mayDelete, onClose, onDeleted }: DeletePointsProps) {
  // What was chosen when the dialog opened, whatever becomes of the list behind it.
  const [ids] = useState(() => points.map((point) => point.id));
  const [reason, setReason] = useState("");
  const [sure, setSure] = useState(false);
  const freed = useFreed(ids);
  const erase = useDeletePoints();
  const kept = freed.data?.points.filter((point) => point.locked_until !== null || point.hold !== null) ?? [];
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    erase.mutate({ ids, reason: reason.trim() }, { onSuccess: onDeleted });
  };
  return (
    <Dialog title={mayDelete ? `Delete ${plural(ids.length, "restore point")}?` : `What deleting ${plural(ids.length, "restore point")} frees`} pending={erase.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <Async query={freed} lines={3} height={90}>
          {(answer) => (
            <>
              <Facts>
                <Fact term="freed_bytes" kind="bytes" value={answer.freed_bytes} />
              </Facts>
              <p className="muted">
                {answer.freed_bytes === null
                  ? "How much that frees is not known now. "
                  : "What other restore points need as well stays. "}
                The space comes back with the next reclaim.
              </p>
              <ul className="chosen-points">
                {answer.points.map((point) => (
                  <li key={point.id}>
                    {point.vm}, {minute(point.started)} <span className="muted">{point.job}, in {point.namespace}</span> <KeptBadges point={point} />
                  </li>
                ))}
              </ul>
            </>
          )}
        </Async>
        {kept.length > 0 && (
          <div className="note note-warn">
            <Icon name="lock" />
            <p>{plural(kept.length, "restore point is", "restore points are")} locked or held, so none of them can be deleted together.</p>
          </div>
        )}
        {mayDelete ? (
          <>
            <label className="field">
              <span>Reason</span>
              <input name="reason" maxLength={200} value={reason} placeholder="for the audit log" autoComplete="off" onChange={(event) => setReason(event.target.value)} />
            </label>
            <label className="confirm">
              <input type="checkbox" checked={sure} onChange={(event) => setSure(event.target.checked)} />
              <span>Delete them for good. No one can bring them back.</span>
            </label>
          </>
        ) : (
          <p className="muted">Administrators delete restore points; operators run the policies that do.</p>
        )}
        {erase.error !== null && <ErrorNote error={erase.error} />}
        {mayDelete ? (
          <FormActions word="Delete" busy="Deleting…" danger pending={erase.isPending} disabled={!sure || freed.data === undefined || kept.length > 0} onClose={onClose} />
        ) : (
          <div className="form-actions">
            <button type="button" className="button" onClick={onClose}>
              Close
            </button>
          </div>
        )}
      </form>
    </Dialog>
  );
}
