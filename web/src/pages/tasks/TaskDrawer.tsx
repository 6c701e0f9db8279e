/** One task with its whole log. */

import { useTask } from "../../api/tasks";
import type { Task } from "../../api/schema";
import { Dialog } from "../../components/Dialog";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { TaskBadge } from "../../components/Status";
import { definition } from "../../format/definitions";
import { second } from "../../format/time";
import { Figures } from "./Figures";
import { KINDS, progressOf } from "./words";

export function TaskDrawer({ id, onClose }: { id: string; onClose: () => void }) {
  const query = useTask(id);
  return (
    <Dialog title={query.data === undefined ? "Task" : definition(KINDS[query.data.kind].term).label} drawer onClose={onClose}>
      <div className="drawer-content">
        <Async query={query} lines={8} height={300}>
          {(task) => <Contents task={task} />}
        </Async>
      </div>
    </Dialog>
  );
}

function Contents({ task }: { task: Task }) {
  const facts: [name: string, value: string][] = [
    ["Started by", task.scheduled ? "its schedule" : task.who],
    ["Created", second(task.created)],
    ["Started", second(task.started)],
    ["Ended", second(task.finished)],
    ["Attempts", String(task.attempts)],
    ["Options", Object.keys(task.options).length === 0 ? "none" : JSON.stringify(task.options)],
    ["Done", progressOf(task) || "–"],
    ["Id", task.id],
  ];
  return (
    <>
      <div className="drawer-badges">
        <TaskBadge status={task.status} />
      </div>
      {task.error !== "" && (
        <div className="note note-bad">
          <Icon name="fail" />
          <p>{task.error}</p>
        </div>
      )}
      <Figures figures={task.figures} />
      <dl className="facts facts-text">
        {facts.map(([name, value]) => (
          <div key={name} className="fact">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <h3>Log</h3>
      {task.log.length === 0 ? (
        <p className="muted">It has told nothing yet.</p>
      ) : (
        <ol className="log" aria-label="Log">
          {task.log.map((line) => (
            <li key={line.number}>
              <span className="muted nowrap">{second(line.at)}</span> <span className="break">{line.text}</span>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
