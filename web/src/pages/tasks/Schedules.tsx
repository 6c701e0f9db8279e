/** When tasks of each kind start by themselves. */

import { useState, type SubmitEvent } from "react";

import { useSetSchedule } from "../../api/tasks";
import type { Schedule } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { ScheduleFields } from "../../components/ScheduleFields";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { definition } from "../../format/definitions";
import { minute, relative } from "../../format/time";
import { KINDS } from "./words";

const labelOf = (schedule: Schedule): string => definition(KINDS[schedule.kind].term).label;

export function Schedules({ schedules }: { schedules: readonly Schedule[] }) {
  const [editing, setEditing] = useState<Schedule | null>(null);
  const columns: SimpleColumn<Schedule>[] = [
    { id: "kind", term: "task", render: labelOf },
    { id: "expression", term: "calendar", render: (each) => <code>{each.expression}</code> },
    { id: "zone", term: "time_zone", render: (each) => each.time_zone },
    {
      id: "next",
      term: "next_run",
      render: (each) =>
        each.next === null ? (
          <span className="muted">–</span>
        ) : (
          <span className="nowrap" data-exact={relative(each.next)}>
            {minute(each.next)}
          </span>
        ),
    },
    { id: "who", header: "Set by", render: (each) => each.who ?? <span className="muted">default</span> },
    { id: "state", header: "State", render: (each) => (each.enabled ? <Badge tone="good" icon="check">on</Badge> : <Badge tone="quiet" icon="stop">off</Badge>) },
    {
      id: "actions",
      header: "Actions",
      render: (each) => (
        <span className="row-actions">
          <Switch schedule={each} />
          <button type="button" className="button button-small" aria-label={`Edit the schedule of ${each.kind}`} onClick={() => setEditing(each)}>
            Edit
          </button>
        </span>
      ),
    },
  ];
  return (
    <>
      <SimpleTable caption="Schedules" columns={columns} rows={schedules} rowKey={(each) => each.kind} />
      {editing !== null && <EditSchedule schedule={editing} onClose={() => setEditing(null)} />}
    </>
  );
}

function Switch({ schedule }: { schedule: Schedule }) {
  const set = useSetSchedule(schedule.kind);
  const { expression, time_zone, options, enabled } = schedule;
  return (
    <>
      <button
        type="button"
        className="button button-small"
        aria-label={`Switch ${schedule.kind} ${enabled ? "off" : "on"}`}
        disabled={set.isPending}
        onClick={() => set.mutate({ expression, time_zone, options, enabled: !enabled })}
      >
        {enabled ? "Switch off" : "Switch on"}
      </button>
      {set.error !== null && <ErrorNote error={set.error} />}
    </>
  );
}

function EditSchedule({ schedule, onClose }: { schedule: Schedule; onClose: () => void }) {
  const set = useSetSchedule(schedule.kind);
  const [expression, setExpression] = useState(schedule.expression);
  const [zone, setZone] = useState(schedule.time_zone);
  const [enabled, setEnabled] = useState(schedule.enabled);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    set.mutate({ expression: expression.trim(), time_zone: zone.trim() || null, options: schedule.options, enabled }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Schedule of ${labelOf(schedule).toLowerCase()}`} pending={set.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="muted">What comes due while the server does not run is made up for once, when it does again.</p>
        <ScheduleFields label="Starts" required expression={expression} onExpression={setExpression} zone={zone} onZone={setZone} />
        <label className="confirm">
          <input type="checkbox" checked={enabled} onChange={(event) => setEnabled(event.target.checked)} />
          <span>{enabled ? "On" : "Off: started by hand only"}</span>
        </label>
        {set.error !== null && <ErrorNote error={set.error} />}
        <FormActions word="Save" busy="Saving…" pending={set.isPending} disabled={expression.trim() === ""} onClose={onClose} />
      </form>
    </Dialog>
  );
}
