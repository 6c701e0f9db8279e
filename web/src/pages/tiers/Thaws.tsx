/** What is being brought back from the archive now. */

import { useState } from "react";

import { useTasks } from "../../api/tasks";
import { Async } from "../../components/Feedback";
import { OpenTask } from "../tasks/OpenTask";
import { TaskDrawer } from "../tasks/TaskDrawer";
import { isOpen } from "../tasks/words";

export function Thaws() {
  const tasks = useTasks({ kind: "thaw" });
  const [shown, setShown] = useState("");
  const open = tasks.data?.pages.flatMap((page) => page.items).filter((task) => isOpen(task.status)) ?? [];
  return (
    <>
      <Async query={tasks} lines={2}>
        {() =>
          open.length === 0 ? (
            <p className="muted">
              Nothing is being thawed. A restore point whose data lies in the archive says so on the page of its VM, with what bringing it back costs.
            </p>
          ) : (
            <ul className="sessions">
              {open.map((task) => (
                <OpenTask key={task.id} task={task} onShow={() => setShown(task.id)} />
              ))}
            </ul>
          )
        }
      </Async>
      {shown !== "" && <TaskDrawer id={shown} onClose={() => setShown("")} />}
    </>
  );
}
