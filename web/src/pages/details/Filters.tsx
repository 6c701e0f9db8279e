/** The filters above the table. Each change goes into the address at once; text after a short pause. */

import { useId } from "react";

import { useJobs, useVms } from "../../api/queries";
import { Icon } from "../../components/icons";
import { Menu } from "../../components/Menu";
import { Search } from "../../components/Search";
import { day } from "../../format/time";
import { isFiltered, SPANS, STATUSES, UNFILTERED, type View } from "./view";

interface FiltersProps {
  view: View;
  onChange: (changes: Partial<View>) => void;
}

export function Filters({ view, onChange }: FiltersProps) {
  const jobs = useJobs(view.namespace).data?.items ?? [];
  const vms = useVms({ namespace: view.namespace, limit: 1000, sort: "vm" }).data?.items ?? [];
  return (
    <div className="filters" role="search" aria-label="Filter rows">
      <Search value={view.q} placeholder="Search VM, disk, job, error…" onChange={(q) => onChange({ q })} />
      <Choice label="Job" all="All jobs" value={view.job} values={jobs.map((job) => job.job)} onChange={(job) => onChange({ job })} />
      <Choice label="VM" all="All VMs" value={view.vm} values={vms.map((vm) => vm.vm)} onChange={(vm) => onChange({ vm })} />
      <StatusFilter view={view} onChange={onChange} />
      <TimeFilter view={view} onChange={onChange} />
      <button
        type="button"
        className="button"
        aria-pressed={view.existing !== ""}
        data-exact="Only runs whose restore point was not deleted"
        onClick={() => onChange({ existing: view.existing === "" ? "true" : "" })}
      >
        Still there
      </button>
      <Fixed label="Disk" value={view.disk} onClear={() => onChange({ disk: "" })} />
      <Fixed label="Run" value={view.run} onClear={() => onChange({ run: "" })} />
      {isFiltered(view) && (
        <button type="button" className="button button-quiet" onClick={() => onChange(UNFILTERED)}>
          Reset filters
        </button>
      )}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  all: string;
  value: string;
  values: string[];
  onChange: (value: string) => void;
}

function Choice({ label, all, value, values, onChange }: ChoiceProps) {
  const options = [...new Set(value === "" ? values : [...values, value])].toSorted();
  return (
    <label className={`choice ${value === "" ? "" : "is-set"}`}>
      <span className="visually-hidden">{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{all}</option>
        {options.map((option) => (
          <option key={option}>{option}</option>
        ))}
      </select>
    </label>
  );
}

function StatusFilter({ view, onChange }: FiltersProps) {
  const label = view.status.length === 0 ? "Any status" : view.status.join(", ");
  return (
    <Menu label={<span className={view.status.length > 0 ? "is-set" : ""}>{label}</span>} name="Status">
      {() => (
        <fieldset className="options">
          <legend className="visually-hidden">Status</legend>
          {STATUSES.map((status) => (
            <label key={status}>
              <input
                type="checkbox"
                checked={view.status.includes(status)}
                onChange={(event) =>
                  onChange({
                    status: event.target.checked
                      ? STATUSES.filter((other) => other === status || view.status.includes(other))
                      : view.status.filter((other) => other !== status),
                  })
                }
              />
              {status}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}

function TimeFilter({ view, onChange }: FiltersProps) {
  const span = SPANS.some(([value]) => value === view.since) && view.until === "";
  const custom = !span && (view.since !== "" || view.until !== "");
  const id = useId();
  const choose = (value: string) => {
    if (value !== "custom") return onChange({ since: value, until: "" });
    const week = new Date();
    week.setDate(week.getDate() - 6);
    onChange({ since: day(week), until: day(new Date()) });
  };
  return (
    <>
      <label className={`choice ${view.since === "" && !custom ? "" : "is-set"}`}>
        <span className="visually-hidden">Time</span>
        <select value={custom ? "custom" : view.since} onChange={(event) => choose(event.target.value)}>
          <option value="">Any time</option>
          {SPANS.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
          <option value="custom">Custom range…</option>
        </select>
      </label>
      {custom && (
        <span className="dates">
          <label htmlFor={`${id}-from`}>from</label>
          <input id={`${id}-from`} type="date" value={view.since} max={view.until || undefined} onChange={(event) => onChange({ since: event.target.value })} />
          <label htmlFor={`${id}-to`}>to</label>
          <input id={`${id}-to`} type="date" value={view.until} min={view.since || undefined} onChange={(event) => onChange({ until: event.target.value })} />
        </span>
      )}
    </>
  );
}

/** A filter that was set by choosing a group; it can only be removed. */
function Fixed({ label, value, onClear }: { label: string; value: string; onClear: () => void }) {
  if (value === "") return null;
  return (
    <span className="chip">
      {label}: <strong>{value}</strong>
      <button type="button" aria-label={`Remove the filter: ${label} ${value}`} onClick={onClear}>
        <Icon name="close" />
      </button>
    </span>
  );
}
