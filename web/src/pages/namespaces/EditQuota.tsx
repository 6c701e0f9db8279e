/** The form for what a namespace may take. */

import { useState, type SubmitEvent } from "react";

import { useSetQuota } from "../../api/queries";
import type { Namespace, Quota } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { parseLimit, type Unit, writeLimit } from "./limit";

const FIELDS: readonly [key: keyof Quota, label: string, unit: Unit][] = [
  ["stored_bytes", "Stored", "bytes"],
  ["protected_bytes", "Protected", "bytes"],
  ["restore_points", "Restore points", "count"],
  ["sessions_per_day", "Backups a day", "count"],
];

export function EditQuota({ namespace, onClose }: { namespace: Namespace; onClose: () => void }) {
  const set = useSetQuota();
  const [texts, setTexts] = useState<Record<string, string>>(() =>
    Object.fromEntries(FIELDS.map(([key, , unit]) => [key, writeLimit(namespace.quota[key] ?? null, unit)])),
  );
  const limits = FIELDS.map(([key, , unit]) => [key, parseLimit(texts[key] ?? "", unit)] as const);
  const wrong = limits.some(([, limit]) => limit === undefined);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const quota = Object.fromEntries(limits) as Quota;
    set.mutate({ name: namespace.name, quota }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Quota of ${namespace.name}`} pending={set.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="muted">An empty field is no limit. Sizes are written with a unit: 500GB, 2TB.</p>
        {FIELDS.map(([key, label, unit]) => (
          <label key={key} className="field">
            <span>{label}</span>
            <input
              name={key}
              value={texts[key] ?? ""}
              placeholder="no limit"
              autoComplete="off"
              aria-invalid={parseLimit(texts[key] ?? "", unit) === undefined}
              onChange={(event) => setTexts({ ...texts, [key]: event.target.value })}
            />
          </label>
        ))}
        {set.error !== null && <ErrorNote error={set.error} />}
        <FormActions word="Save" busy="Saving…" pending={set.isPending} disabled={wrong} onClose={onClose} />
      </form>
    </Dialog>
  );
}
