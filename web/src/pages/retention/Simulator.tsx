/** What rules keep of the backups that a schedule makes, drawn for the next two years. */

import { useDeferredValue, useState } from "react";

import { useSimulation } from "../../api/retention";
import type { SimulatePolicy } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { ScheduleFields } from "../../components/ScheduleFields";
import { Kept } from "./Kept";
import { RuleFields } from "./RuleFields";
import { rulesOf, type RuleTexts } from "./rules";

/** Two years, and the day after them. */
const DAYS = 731;

interface SimulatorProps {
  rules: RuleTexts;
  onRules: (rules: RuleTexts) => void;
  zone: string;
  onZone: (zone: string) => void;
}

export function Simulator({ rules: texts, onRules, zone, onZone }: SimulatorProps) {
  const [schedule, setSchedule] = useState("@daily");
  const rules = rulesOf(texts);
  return (
    <div id="simulator">
      <Card title="Simulator" hint="What these rules keep over the next two years, beginning with nothing, if every backup succeeds.">
        <div className="simulator">
          <div className="form">
            <RuleFields texts={texts} onChange={onRules} />
            <ScheduleFields label="Backups run" required expression={schedule} onExpression={setSchedule} zone={zone} onZone={onZone} />
          </div>
          {rules !== undefined && schedule.trim() !== "" ? (
            <Result wanted={{ rules, schedule: schedule.trim(), time_zone: zone.trim(), days: DAYS }} />
          ) : (
            <p className="muted">Rules are whole numbers, and backups need a schedule.</p>
          )}
        </div>
      </Card>
    </div>
  );
}

function Result({ wanted }: { wanted: SimulatePolicy }) {
  // While someone types, the drawing may lag behind.
  const text = useDeferredValue(JSON.stringify(wanted));
  const query = useSimulation(JSON.parse(text) as SimulatePolicy);
  return (
    <Async query={query} height={360} lines={6}>
      {(answer) => <Kept days={answer.days} />}
    </Async>
  );
}
