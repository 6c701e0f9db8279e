/** Agents that back up by the clock, and which of them are late. */

import { useAgents } from "../../api/queries";
import type { Agent } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { minute, relative, second } from "../../format/time";

function State({ agent }: { agent: Agent }) {
  if (agent.late) return <Badge tone="bad" icon="clock">late</Badge>;
  if (agent.report.problem !== "") return <Badge tone="warn" icon="fail">problem</Badge>;
  return <Badge tone="good" icon="check">on time</Badge>;
}

const COLUMNS: SimpleColumn<Agent>[] = [
  { id: "host", header: "Host", render: (agent) => agent.report.host },
  { id: "token", header: "Token", render: (agent) => agent.token },
  { id: "state", header: "State", render: (agent) => <State agent={agent} /> },
  { id: "vms", header: "VMs", kind: "count", value: (agent) => agent.report.vms },
  { id: "next", header: "Next run", render: (agent) => <Next iso={agent.report.next_run} /> },
  {
    id: "seen",
    header: "Last seen",
    render: (agent) => <span className="nowrap" data-exact={second(agent.seen)}>{relative(agent.seen)}</span>,
  },
  { id: "version", header: "Version", render: (agent) => agent.report.version },
  { id: "problem", header: "Problem", render: (agent) => agent.report.problem },
];

function Next({ iso }: { iso: string | null | undefined }) {
  if (iso == null) return <span className="muted">none</span>;
  return <span className="nowrap" data-exact={second(iso)}>{minute(iso)}</span>;
}

export function Agents() {
  const agents = useAgents();
  return (
    <Card
      title="Agents"
      hint="Agents that back up by the clock. One is late when its next run has passed by more than two hours and it has not been heard of for as long: look at holdfast-agent.service on its host, or revoke its token if it is gone."
    >
      <Async query={agents} height={80}>
        {(page) =>
          page.items.length === 0 ? (
            <p className="muted">None has reported yet.</p>
          ) : (
            <SimpleTable caption="Agents" columns={COLUMNS} rows={page.items} rowKey={(agent) => `${agent.token}/${agent.report.host}`} />
          )
        }
      </Async>
    </Card>
  );
}
