/** Tasks: what is under way, what was done and what it came to, and when tasks start by themselves. */

import { useState } from "react";

import { useSchedules, useStartTask, useTasks } from "../../api/tasks";
import type { TaskKind } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async, Empty, ErrorNote, Skeleton } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { Menu } from "../../components/Menu";
import { definition } from "../../format/definitions";
import { History } from "./History";
import { OpenTask } from "./OpenTask";
import { Schedules } from "./Schedules";
import { TaskDrawer } from "./TaskDrawer";
import { isOpen, KINDS } from "./words";

export default function Tasks() {
  const tasks = useTasks({});
  const schedules = useSchedules();
  const [shown, setShown] = useState<string | null>(null);
  const all = tasks.data?.pages.flatMap((page) => page.items);
  const open = all?.filter((task) => isOpen(task.status)) ?? [];
  const ended = all?.filter((task) => !isOpen(task.status)) ?? [];
  return (
    <div className="page page-tasks">
      <div className="page-head">
        <h1>Tasks</h1>
        <Start kinds={schedules.data?.items.map((each) => each.kind) ?? []} />
      </div>
      <Card title="Under way" className={open.some((task) => task.status === "running") ? "running" : ""}>
        <Async query={tasks} lines={3}>
          {() =>
            open.length === 0 ? (
              <p className="muted">No task is under way.</p>
            ) : (
              <ul className="sessions">
                {open.map((task) => (
                  <OpenTask key={task.id} task={task} onShow={() => setShown(task.id)} />
                ))}
              </ul>
            )
          }
        </Async>
      </Card>
      <Card title="Schedules" hint="When tasks start by themselves. Retention policies have schedules of their own.">
        <Async query={schedules} height={140}>
          {(page) => <Schedules schedules={page.items} />}
        </Async>
      </Card>
      <Card title="History" hint="Of each kind the newest 500, for two years.">
        {all === undefined ? tasks.error === null && <Skeleton lines={4} /> : ended.length === 0 ? <Empty title="No task has ended yet" /> : <History tasks={ended} onShow={setShown} />}
        {tasks.hasNextPage && (
          <button type="button" className="button" disabled={tasks.isFetchingNextPage} onClick={() => void tasks.fetchNextPage()}>
            {tasks.isFetchingNextPage ? "Loading…" : "Load older tasks"}
          </button>
        )}
      </Card>
      {shown !== null && <TaskDrawer id={shown} onClose={() => setShown(null)} />}
    </div>
  );
}

interface Choice {
  kind: TaskKind;
  options: Record<string, unknown>;
  label: string;
  text: string;
}

/** What can be started. Reclaim also as a dry run, which only says what it would free; a thaw by a restore alone, which knows of what. */
function choices(kinds: readonly TaskKind[]): Choice[] {
  return kinds.flatMap((kind) => {
    if (kind === "thaw") return [];
    const { term, text } = KINDS[kind];
    const plain: Choice = { kind, options: {}, label: definition(term).label, text };
    if (kind !== "reclaim") return [plain];
    const dry: Choice = { kind, options: { dry_run: true }, label: "Reclaim, dry run", text: "Say what it would free, and change nothing" };
    return [plain, dry];
  });
}

function Start({ kinds }: { kinds: readonly TaskKind[] }) {
  const start = useStartTask();
  if (kinds.length === 0) return null;
  return (
    <>
      <Menu icon="play" label="Start a task" name="Tasks to start" align="end">
        {(close) => (
          <ul className="choices">
            {choices(kinds).map(({ kind, options, label, text }) => (
              <li key={label}>
                <button
                  type="button"
                  disabled={start.isPending}
                  onClick={() => {
                    start.mutate({ kind, options });
                    close();
                  }}
                >
                  <Icon name="play" />
                  <span>
                    {label}
                    <span className="muted">{text}</span>
                  </span>
                </button>
              </li>
            ))}
          </ul>
        )}
      </Menu>
      {start.error !== null && <ErrorNote error={start.error} />}
    </>
  );
}
