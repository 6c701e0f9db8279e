/** What keeps a restore point, and the dialogs in which administrators lock it, hold it and release it. */

import { useState, type SubmitEvent } from "react";

import { useHold, useLock, useReleaseHold } from "../../api/retention";
import type { Backup } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { useToday } from "../../components/today";
import { daysAfter, minute, startOfDay } from "../../format/time";

type Opened = "lock" | "hold" | "release";

export function Keeping({ point }: { point: Backup }) {
  const [opened, setOpened] = useState<Opened | null>(null);
  const close = () => setOpened(null);
  const { locked_until: until, hold } = point;
  return (
    <>
      {hold !== null && (
        <p>
          Held by {hold.by} since {minute(hold.since)}: {hold.reason}
        </p>
      )}
      <p className="keeping">
        <button type="button" className="button button-small" onClick={() => setOpened("lock")}>
          <Icon name="lock" />
          {until === null ? "Lock…" : "Lock longer…"}
        </button>
        {hold === null ? (
          <button type="button" className="button button-small" onClick={() => setOpened("hold")}>
            <Icon name="hold" />
            Hold…
          </button>
        ) : (
          <button type="button" className="button button-small" onClick={() => setOpened("release")}>
            <Icon name="hold" />
            Release the hold…
          </button>
        )}
      </p>
      {opened === "lock" && <LockPoint point={point} onClose={close} />}
      {opened === "hold" && <HoldPoint point={point} onClose={close} />}
      {opened === "release" && <ReleaseHold point={point} onClose={close} />}
    </>
  );
}

const DEFAULT_DAYS = 30;

function LockPoint({ point, onClose }: { point: Backup; onClose: () => void }) {
  const lock = useLock(point.id);
  const today = useToday();
  const least = daysAfter(point.locked_until === null ? startOfDay(today) : new Date(point.locked_until), 1);
  const [until, setUntil] = useState(() => (point.locked_until === null ? daysAfter(startOfDay(today), DEFAULT_DAYS) : least));
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    lock.mutate(startOfDay(until).toISOString(), { onSuccess: onClose });
  };
  return (
    <Dialog title={`Lock the restore point of ${minute(point.finished)}`} pending={lock.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <Of point={point} />
        <p>Until then no one can delete it, administrators included. A lock can be lengthened, but never shortened or taken back.</p>
        <label className="field">
          <span>Until the beginning of</span>
          <input type="date" name="until" required min={least} value={until} onChange={(event) => setUntil(event.target.value)} />
        </label>
        {lock.error !== null && <ErrorNote error={lock.error} />}
        <FormActions word="Lock" busy="Locking…" pending={lock.isPending} disabled={until === "" || until < least} onClose={onClose} />
      </form>
    </Dialog>
  );
}

function HoldPoint({ point, onClose }: { point: Backup; onClose: () => void }) {
  const hold = useHold(point.id);
  return (
    <Reasoned
      point={point}
      title={`Hold the restore point of ${minute(point.finished)}`}
      text="It cannot be deleted until an administrator releases the hold."
      word="Hold"
      busy="Placing the hold…"
      change={hold}
      onClose={onClose}
    />
  );
}

function ReleaseHold({ point, onClose }: { point: Backup; onClose: () => void }) {
  const release = useReleaseHold(point.id);
  const still = point.locked_until === null ? "From then on it can be deleted." : `It stays locked until ${minute(point.locked_until)}.`;
  return (
    <Reasoned
      point={point}
      title={`Release the hold of ${minute(point.finished)}`}
      text={`Held because: ${point.hold?.reason ?? ""}. ${still}`}
      word="Release"
      busy="Releasing…"
      change={release}
      onClose={onClose}
    />
  );
}

interface ReasonedProps {
  point: Backup;
  title: string;
  text: string;
  word: string;
  busy: string;
  change: { mutate: (reason: string, options: { onSuccess: () => void }) => void; error: unknown; isPending: boolean };
  onClose: () => void;
}

const Of = ({ point: { vm, namespace } }: { point: Backup }) => (
  <p>
    VM {vm} in the namespace {namespace}
  </p>
);

/** A change that takes a reason, which the audit log keeps. */
function Reasoned({ point, title, text, word, busy, change, onClose }: ReasonedProps) {
  const [reason, setReason] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    change.mutate(reason.trim(), { onSuccess: onClose });
  };
  return (
    <Dialog title={title} pending={change.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <Of point={point} />
        <p>{text}</p>
        <label className="field">
          <span>Reason</span>
          <input name="reason" required maxLength={200} value={reason} autoComplete="off" onChange={(event) => setReason(event.target.value)} />
          <span className="muted">The audit log keeps it.</span>
        </label>
        {change.error !== null && <ErrorNote error={change.error} />}
        <FormActions word={word} busy={busy} pending={change.isPending} disabled={reason.trim() === ""} onClose={onClose} />
      </form>
    </Dialog>
  );
}
