/** Tasks that have ended, newest first. */

import type { Task } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { TaskBadge } from "../../components/Status";
import { duration } from "../../format/numbers";
import { minute, second } from "../../format/time";
import { definition } from "../../format/definitions";
import { figuresOf, KINDS } from "./words";

/** Figures in a row; the log has all of them. */
const FEW = 2;

/** Seconds from its first start to its end. */
const lasted = ({ started, finished }: Task): number | null =>
  started === null || finished === null ? null : (Date.parse(finished) - Date.parse(started)) / 1000;

/** The figures that say most: those that are not nothing. */
const outcome = (task: Task): string =>
  figuresOf(task.figures)
    .filter(({ text }) => text !== "0" && text !== "0 B")
    .slice(0, FEW)
    .map(({ label, text }) => `${label.charAt(0).toLowerCase()}${label.slice(1)} ${text}`)
    .join(", ");

/** What it did, or would do, or that there was nothing to do. */
const outcomeOf = (task: Task): string => {
  const said = outcome(task) || (task.status === "done" ? "nothing to do" : "");
  return task.figures["dry_run"] === true ? `dry run: ${said}` : said;
};

export function History({ tasks, onShow }: { tasks: readonly Task[]; onShow: (id: string) => void }) {
  const columns: SimpleColumn<Task>[] = [
    { id: "kind", term: "task", render: (task) => definition(KINDS[task.kind].term).label },
    { id: "status", term: "task_status", render: (task) => <TaskBadge status={task.status} /> },
    { id: "finished", header: "Ended", render: (task) => <span className="nowrap" data-exact={second(task.finished)}>{minute(task.finished)}</span> },
    { id: "lasted", header: "Took", render: (task) => <span className="nowrap">{duration(lasted(task))}</span> },
    { id: "who", header: "Started by", render: (task) => (task.scheduled ? <span className="muted">its schedule</span> : task.who) },
    { id: "outcome", header: "Outcome", render: (task) => <span className="break">{task.error === "" ? outcomeOf(task) : task.error}</span> },
    {
      id: "log",
      header: "Log",
      render: (task) => (
        <button type="button" className="button button-small" aria-label={`Log of ${task.kind}, ${minute(task.finished)}`} onClick={() => onShow(task.id)}>
          Log
        </button>
      ),
    },
  ];
  return <SimpleTable caption="Tasks that have ended" columns={columns} rows={tasks} rowKey={(task) => task.id} />;
}
