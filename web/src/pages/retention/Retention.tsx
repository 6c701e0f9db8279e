/** Retention: the policies that decide what is kept, and what rules would keep over the years. */

import { useState } from "react";

import { usePolicies } from "../../api/retention";
import type { Policy } from "../../api/schema";
import { may, useWho } from "../../api/session";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { useNamespace } from "../../components/location";
import { ownZone } from "../../format/time";
import { EditPolicy } from "./EditPolicy";
import { Policies } from "./Policies";
import { RemovePolicy } from "./RemovePolicy";
import { RunPolicy } from "./RunPolicy";
import { Simulator } from "./Simulator";
import { NO_RULES, textsOf, type RuleTexts } from "./rules";

/** What the simulator begins with. */
const FIRST: RuleTexts = { ...NO_RULES, keep_daily: "14", keep_weekly: "8", keep_monthly: "12", keep_yearly: "2" };

type Opened = { kind: "create" } | { kind: "edit" | "run" | "remove"; policy: Policy };

export default function Retention() {
  const namespace = useNamespace();
  const session = useWho();
  const policies = usePolicies(namespace);
  const [opened, setOpened] = useState<Opened | null>(null);
  const [rules, setRules] = useState<RuleTexts>(FIRST);
  const [zone, setZone] = useState(ownZone);
  const close = () => setOpened(null);
  const mayRun = may(session, "operate");
  const mayEdit = may(session, "retain");
  return (
    <div className="page page-retention">
      <h1>Retention</h1>
      <Card
        title="Policies"
        hint="Which restore points are kept. Without a policy nothing is deleted."
        actions={
          mayEdit && (
            <button type="button" className="button button-primary" onClick={() => setOpened({ kind: "create" })}>
              <Icon name="plus" />
              Create a policy
            </button>
          )
        }
      >
        <Async query={policies} height={160}>
          {(page) =>
            page.items.length === 0 ? (
              <Empty title="No policies yet">
                <p>All restore points are kept{mayEdit ? " until a policy says otherwise." : "."}</p>
              </Empty>
            ) : (
              <Policies
                policies={page.items}
                mayRun={mayRun}
                mayEdit={mayEdit}
                onRun={(policy) => setOpened({ kind: "run", policy })}
                onEdit={(policy) => setOpened({ kind: "edit", policy })}
                onRemove={(policy) => setOpened({ kind: "remove", policy })}
                onSimulate={(policy) => {
                  setRules(textsOf(policy.rules));
                  if (policy.time_zone !== "") setZone(policy.time_zone);
                  document.getElementById("simulator")?.scrollIntoView({ block: "start" });
                }}
              />
            )
          }
        </Async>
      </Card>
      {mayRun && <Simulator rules={rules} onRules={setRules} zone={zone} onZone={setZone} />}
      {opened?.kind === "create" && <EditPolicy policy={null} onClose={close} />}
      {opened?.kind === "edit" && <EditPolicy policy={opened.policy} onClose={close} />}
      {opened?.kind === "remove" && <RemovePolicy policy={opened.policy} onClose={close} />}
      {opened?.kind === "run" && <RunPolicy policy={opened.policy} onClose={close} />}
    </div>
  );
}
