/** The form of a policy, new or known. */

import { useState, type SubmitEvent } from "react";

import { useNamespaces } from "../../api/queries";
import { useSetPolicy } from "../../api/retention";
import type { Policy } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { useNamespace } from "../../components/location";
import { ScheduleFields } from "../../components/ScheduleFields";
import { ownZone } from "../../format/time";
import { RuleFields } from "./RuleFields";
import { NO_RULES, rulesOf, textsOf, wholeOf, type RuleTexts } from "./rules";

/** A hundred years: the server locks nothing for longer. */
const LOCK_DAYS_MAX = 36_500;

/** A hundred years: never. */
const ARCHIVE_DAYS_MAX = 36_500;

/** What an empty field stands for. */
const orNull = (text: string): string | null => (text.trim() === "" ? null : text.trim());

export function EditPolicy({ policy, onClose }: { policy: Policy | null; onClose: () => void }) {
  const set = useSetPolicy(policy?.id ?? null);
  const known = useNamespaces().data?.items.map((each) => each.name) ?? [];
  const chosen = useNamespace();
  const [name, setName] = useState(policy?.name ?? "");
  const [namespace, setNamespace] = useState(policy?.namespace ?? chosen);
  const [vm, setVm] = useState(policy?.vm ?? "");
  const [job, setJob] = useState(policy?.job ?? "");
  const [texts, setTexts] = useState<RuleTexts>(() => (policy === null ? NO_RULES : textsOf(policy.rules)));
  const [schedule, setSchedule] = useState(policy?.schedule ?? "@daily");
  const [zone, setZone] = useState(policy?.time_zone ?? ownZone());
  const [lockDays, setLockDays] = useState(() => (policy === null || policy.lock_days === 0 ? "" : String(policy.lock_days)));
  const [archiveDays, setArchiveDays] = useState(() => policy?.archive_after_days?.toString() ?? "");
  const [enabled, setEnabled] = useState(policy?.enabled ?? true);
  const rules = rulesOf(texts);
  const wantedLocks = wholeOf(lockDays, LOCK_DAYS_MAX);
  const locks = wantedLocks === null ? 0 : wantedLocks;
  const archiveAfter = wholeOf(archiveDays, ARCHIVE_DAYS_MAX);
  const isValid = name.trim() !== "" && rules !== undefined && locks !== undefined && archiveAfter !== undefined;
  // Until one is chosen it is the first, which the list shows.
  const where = namespace !== "" ? namespace : (known[0] ?? "");
  const keepsAll = rules !== undefined && Object.values(rules).every((value) => value === 0);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (rules === undefined || locks === undefined || archiveAfter === undefined) return;
    set.mutate(
      {
        name: name.trim(),
        namespace: where,
        vm: orNull(vm),
        job: orNull(job),
        rules,
        schedule: schedule.trim(),
        time_zone: zone.trim(),
        lock_days: locks,
        archive_after_days: archiveAfter,
        enabled,
      },
      { onSuccess: onClose },
    );
  };
  return (
    <Dialog title={policy === null ? "Create a policy" : `Edit ${policy.name} in ${policy.namespace}`} pending={set.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <div className="form-row">
          <label className="field">
            <span>Name</span>
            <input name="name" required maxLength={64} value={name} placeholder="daily, archive, …" autoComplete="off" onChange={(event) => setName(event.target.value)} />
          </label>
          {policy === null && known.length > 1 && (
            <label className="field">
              <span>Namespace</span>
              <select name="namespace" value={where} onChange={(event) => setNamespace(event.target.value)}>
                {known.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
          )}
        </div>
        <div className="form-row">
          <label className="field">
            <span>VM</span>
            <input name="vm" maxLength={200} value={vm} placeholder="every VM" autoComplete="off" onChange={(event) => setVm(event.target.value)} />
          </label>
          <label className="field">
            <span>Job</span>
            <input name="job" maxLength={200} value={job} placeholder="every job" autoComplete="off" onChange={(event) => setJob(event.target.value)} />
          </label>
        </div>
        <RuleFields texts={texts} onChange={setTexts} />
        <p className="muted">
          {keepsAll ? "Without a rule everything is kept." : "A restore point stays when one of these keeps it. A VM always keeps its newest one, and those that are locked or held."}
        </p>
        <ScheduleFields label="Runs" placeholder="by hand only" expression={schedule} onExpression={setSchedule} zone={zone} onZone={setZone} />
        <label className="field">
          <span>Lock new restore points for days</span>
          <input name="lock_days" inputMode="numeric" value={lockDays} placeholder="not at all" autoComplete="off" aria-invalid={locks === undefined} onChange={(event) => setLockDays(event.target.value)} />
          {locks !== undefined && locks > 0 && <span className="muted">No one can delete them before that, and no one can take the lock back.</span>}
        </label>
        <label className="field">
          <span>May go to the archive after days</span>
          <input name="archive_after_days" inputMode="numeric" value={archiveDays} placeholder="as the server is set" autoComplete="off" aria-invalid={archiveAfter === undefined} onChange={(event) => setArchiveDays(event.target.value)} />
          {typeof archiveAfter === "number" && <span className="muted">What only these restore points need takes hours to bring back from there. It counts where the server keeps an archive in its bucket.</span>}
        </label>
        <label className="confirm">
          <input type="checkbox" checked={enabled} onChange={(event) => setEnabled(event.target.checked)} />
          <span>{enabled ? "On" : "Off: it deletes and locks nothing, and no broader policy decides in its place."}</span>
        </label>
        {policy !== null && policy.resting_since !== null && enabled && (
          <p className="muted">It rests, because the catalog was an older copy: names and rules may have changed since. Saving it ends that.</p>
        )}
        {set.error !== null && <ErrorNote error={set.error} />}
        <FormActions word="Save" busy="Saving…" pending={set.isPending} disabled={!isValid} onClose={onClose} />
      </form>
    </Dialog>
  );
}
