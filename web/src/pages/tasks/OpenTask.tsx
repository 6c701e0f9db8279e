/** A task that has not ended: how far it is, what it came to so far, and what can be done with it. */

import { useSteer, type Steering } from "../../api/tasks";
import type { Task } from "../../api/schema";
import { ErrorNote } from "../../components/Feedback";
import { Icon, type IconName } from "../../components/icons";
import { TaskBadge } from "../../components/Status";
import { TermLabel } from "../../components/Value";
import { share } from "../../format/numbers";
import { minute, relative } from "../../format/time";
import { Figures } from "./Figures";
import { KINDS, progressOf } from "./words";

export function OpenTask({ task, onShow }: { task: Task; onShow: () => void }) {
  const { done, total } = task.progress;
  const last = task.log.at(-1);
  return (
    <li className="session" data-task={task.id}>
      <div className="session-head">
        <TermLabel term={KINDS[task.kind].term} />
        <TaskBadge status={task.status} />
        <span className="muted" data-exact={minute(task.started ?? task.created)}>
          {task.started === null ? "waits for another of its kind" : `began ${relative(task.started)}`}, {task.scheduled ? "by its schedule" : `by ${task.who}`}
          {task.attempts > 1 && `, attempt ${task.attempts}`}
        </span>
        <span className="session-percent">{total > 0 ? share(done, total) : ""}</span>
      </div>
      <div
        className="progress"
        role="progressbar"
        aria-label={`Progress of ${task.kind}`}
        aria-valuemin={0}
        aria-valuemax={100}
        {...(total > 0 ? { "aria-valuenow": Math.floor(Math.min(100, (100 * done) / total)) } : {})}
        aria-valuetext={progressOf(task) || task.status}
      >
        <span className="progress-bar" style={{ width: `${total > 0 ? Math.min(100, (100 * done) / total) : 0}%` }} />
      </div>
      <div className="task-line">
        <span className="muted">{progressOf(task)}</span>
        {last !== undefined && <span className="break">{last.text}</span>}
      </div>
      <Figures figures={task.figures} />
      <Steer task={task} onShow={onShow} />
    </li>
  );
}

const WORDS: Record<Steering, [word: string, icon: IconName]> = {
  pause: ["Pause", "pause"],
  resume: ["Resume", "play"],
  cancel: ["Cancel", "stop"],
};

function Steer({ task, onShow }: { task: Task; onShow: () => void }) {
  const steer = useSteer(task.id);
  const ways: Steering[] = task.status === "paused" ? ["resume", "cancel"] : ["pause", "cancel"];
  return (
    <>
      <div className="row-actions">
        {ways.map((how) => {
          const [word, icon] = WORDS[how];
          return (
            <button key={how} type="button" className="button button-small" aria-label={`${word} ${task.kind}`} disabled={steer.isPending} onClick={() => steer.mutate(how)}>
              <Icon name={icon} />
              {word}
            </button>
          );
        })}
        <button type="button" className="button button-small" aria-label={`Log of ${task.kind}`} onClick={onShow}>
          Log
        </button>
      </div>
      {steer.error !== null && <ErrorNote error={steer.error} />}
    </>
  );
}
