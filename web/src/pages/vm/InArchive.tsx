/** What of a restore point lies in the archive and must be brought back before it can be restored. */

import { useState } from "react";
import { Link } from "wouter";

import { useServer } from "../../api/queries";
import type { Backup, Task, Thaw } from "../../api/schema";
import { coversEveryVm, may, useWho } from "../../api/session";
import { useThaw } from "../../api/thaw";
import { ErrorNote } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { bytes } from "../../format/bytes";
import { plural } from "../../format/numbers";
import { ThawDialog } from "./ThawDialog";

export function InArchive({ point }: { point: Backup }) {
  const who = useWho();
  const mayRead = may(who, "restore") || may(who, "read_back");
  const hasBucket = useServer().data?.bucket === true;
  const thaw = useThaw(point.id, 0, mayRead && hasBucket);
  const [asking, setAsking] = useState(false);
  if (!mayRead || !hasBucket) return null;
  if (thaw.error !== null) return <ErrorNote error={thaw.error} onRetry={() => void thaw.refetch()} />;
  if (thaw.data === undefined) return <p className="muted">Looking up what of it lies in the archive…</p>;
  const { data } = thaw;
  if (data.objects + data.objects_under_way + data.objects_readable === 0) return null;
  return (
    <section className={data.objects + data.objects_under_way > 0 ? "note note-warn" : "note"} aria-label="In the archive">
      <Icon name={data.objects_under_way > 0 ? "clock" : "bucket"} />
      <div>
        <p className="note-title">{title(data)}</p>
        <State thaw={data} />
        {data.task !== null && <Progress task={data.task} />}
        {data.objects > 0 && data.task === null && (
          <button type="button" className="button" onClick={() => setAsking(true)}>
            Thaw…
          </button>
        )}
      </div>
      {asking && <ThawDialog point={point} onClose={() => setAsking(false)} />}
    </section>
  );
}

const title = ({ objects, bytes: cold, objects_under_way: underWay, bytes_under_way: coming }: Thaw): string => {
  if (objects > 0) return `${bytes(cold)} of it lie in the archive`;
  return underWay > 0 ? `${bytes(coming)} of it are being thawed` : "What of it lies in the archive was thawed";
};

function State({ thaw }: { thaw: Thaw }) {
  const parts = [
    thaw.objects_under_way > 0 && thaw.objects > 0 ? `${bytes(thaw.bytes_under_way)} are on their way.` : "",
    thaw.objects_readable > 0 ? `${bytes(thaw.bytes_readable)} were thawed and can be read for now.` : "",
  ];
  return (
    <>
      {thaw.objects > 0 && (
        <p>
          It is stored where keeping it costs little and nothing can be read at once ({thaw.classes.join(", ")}). Before it can be restored it has to be
          thawed, which takes hours and costs money.
        </p>
      )}
      {thaw.objects === 0 && thaw.objects_under_way > 0 && <p>It can be restored when all of that is there; a restore that is started with --thaw waits for it.</p>}
      <p>{parts.filter((part) => part !== "").join(" ")}</p>
    </>
  );
}

function Progress({ task }: { task: Task }) {
  const { done, total } = task.progress;
  const who = useWho();
  const mayLook = may(who, "operate") && coversEveryVm(who);
  return (
    <p>
      {task.status === "paused" ? "The task that thaws it is paused" : "A task thaws it"}
      {total > 0 && `: ${done} of ${plural(total, "object")} can be read`}.{" "}
      {mayLook && <Link href="/tasks">All tasks</Link>}
    </p>
  );
}
