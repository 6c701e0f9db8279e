/** Running backups; the server reports them once a second. */

import { Link } from "wouter";

import { useActivity } from "../../api/queries";
import type { Activity } from "../../api/schema";
import { Progress } from "../../charts/Meter";
import { Card } from "../../components/Card";
import { useNamespace, vmPath } from "../../components/location";
import { Value } from "../../components/Value";
import { bytes } from "../../format/bytes";
import { plural } from "../../format/numbers";

export function Running() {
  const namespace = useNamespace();
  const activity = useActivity().data;
  const sessions = (activity?.sessions ?? []).filter((session) => namespace === "" || session.namespace === namespace);
  const restores = (activity?.waiting_restores ?? []).filter((restore) => namespace === "" || restore.namespace === namespace);
  if (sessions.length === 0 && restores.length === 0) return null;
  return (
    <Card title={title(sessions, restores.length)} className="running">
      <ul className="sessions">
        {sessions.map((session) => (
          <Session key={session.session} session={session} />
        ))}
        {restores.map((restore, place) => (
          // One disk may be wanted several times, so its name does not tell them apart.
          // oxlint-disable-next-line react/no-array-index-key
          <li className="session" key={place}>
            <div className="session-head">
              <Link href={vmPath(restore.namespace, restore.vm)}>{restore.vm}</Link>
              <span className="muted">restore of disk {restore.disk}</span>
              <span className="session-percent">{waits(restore.ahead)}</span>
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function title(sessions: Activity[], restores: number) {
  const waiting = sessions.filter((session) => session.ahead != null).length;
  const parts = [
    [sessions.length - waiting, "backup running", "backups running"],
    [waiting, "backup waiting", "backups waiting"],
    [restores, "restore waiting", "restores waiting"],
  ] as const;
  return parts
    .filter(([count]) => count > 0)
    .map(([count, one, many]) => plural(count, one, many))
    .join(", ");
}

const waits = (ahead: number) => (ahead === 0 ? "waiting, next in turn" : `waiting, ${ahead} ahead`);

function share(session: Activity) {
  if (session.ahead != null) return waits(session.ahead);
  return session.bytes_total > 0 ? `${Math.floor((100 * session.bytes_done) / session.bytes_total)} %` : "starting";
}

function Session({ session }: { session: Activity }) {
  const sum = (of: (disk: Activity["disks"][number]) => number) => session.disks.reduce((total, disk) => total + of(disk), 0);
  return (
    <li className="session" data-session={session.session}>
      <div className="session-head">
        <Link href={vmPath(session.namespace, session.vm)}>{session.vm}</Link>
        <span className="muted">
          {session.job} · {session.host}
        </span>
        <span className="session-percent">{share(session)}</span>
      </div>
      <Progress label={`Backup of ${session.vm}`} done={session.bytes_done} total={session.bytes_total} />
      <dl className="session-facts">
        <Pair name="Done">
          <Value term="progress" kind="bytes" value={session.bytes_done} /> of {bytes(session.bytes_total)}
        </Pair>
        <Pair name="Speed">
          <Value term="bytes_per_second" kind="byte_rate" value={session.bytes_per_second} />
        </Pair>
        <Pair name="Time left">
          <Value term="eta" kind="seconds" value={session.eta_seconds} />
        </Pair>
        <Pair name="New">
          <Value term="live_new" kind="bytes" value={sum((disk) => disk.new_bytes)} />
        </Pair>
        <Pair name="Sent">
          <Value term="live_wire" kind="bytes" value={sum((disk) => disk.wire_bytes)} />
        </Pair>
      </dl>
      {session.disks.length > 1 && (
        <ul className="session-disks">
          {session.disks.map((disk) => (
            <li key={disk.name}>
              <span>{disk.name}</span>
              <Progress label={`Disk ${disk.name}`} done={disk.done_bytes} total={disk.size_bytes} />
              <span className="muted">{disk.finished ? "done" : `${bytes(disk.done_bytes)} of ${bytes(disk.size_bytes)}`}</span>
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

function Pair({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
