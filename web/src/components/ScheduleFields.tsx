/** A calendar expression and its time zone. */

import { useId } from "react";

import { TermLabel } from "./Value";

/** Written into the field when chosen. */
const EXAMPLES = ["@hourly", "@daily", "@weekly", "@monthly", "0 6 * * *", "30 22 * * MON-FRI", "0 3 * * SAT"];

/** As the server bounds them. */
const EXPRESSION_MAX = 200;
const ZONE_MAX = 64;

/** The browser's time zones, where it tells them. */
const zones = (): string[] => ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])];

interface ScheduleFieldsProps {
  label: string;
  placeholder?: string;
  required?: boolean;
  expression: string;
  onExpression: (expression: string) => void;
  zone: string;
  onZone: (zone: string) => void;
}

export function ScheduleFields({ label, placeholder = "@daily", required = false, expression, onExpression, zone, onZone }: ScheduleFieldsProps) {
  const id = useId();
  return (
    <div className="schedule-fields">
      <div className="field">
        <label htmlFor={`${id}-expression`}>{label}</label>
        <input
          id={`${id}-expression`}
          name="schedule"
          list={`${id}-examples`}
          required={required}
          maxLength={EXPRESSION_MAX}
          placeholder={placeholder}
          autoComplete="off"
          value={expression}
          onChange={(event) => onExpression(event.target.value)}
        />
        <datalist id={`${id}-examples`}>
          {EXAMPLES.map((example) => (
            <option key={example}>{example}</option>
          ))}
        </datalist>
        <p className="muted">
          <TermLabel term="calendar">Calendar expression</TermLabel>
        </p>
      </div>
      <div className="field">
        <label htmlFor={`${id}-zone`}>Time zone</label>
        <input
          id={`${id}-zone`}
          name="time_zone"
          list={`${id}-zones`}
          maxLength={ZONE_MAX}
          placeholder="UTC"
          autoComplete="off"
          value={zone}
          onChange={(event) => onZone(event.target.value)}
        />
        <datalist id={`${id}-zones`}>
          {zones().map((name) => (
            <option key={name}>{name}</option>
          ))}
        </datalist>
      </div>
    </div>
  );
}
