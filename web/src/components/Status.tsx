/** States as an icon and a word; the colour only repeats what they say. */

import type { Finding, FindingKind, Hold, RowStatus, TaskStatus, Verify } from "../api/schema";
import { bytes, exactBytes } from "../format/bytes";
import { localDay, minute, relative } from "../format/time";
import { Icon, type IconName } from "./icons";

type Tone = "good" | "warn" | "bad" | "quiet";

export function Badge({ tone, icon, children, term }: { tone: Tone; icon: IconName; children: React.ReactNode; term?: string }) {
  return (
    <span className={`badge badge-${tone}`} data-term={term}>
      <Icon name={icon} />
      {children}
    </span>
  );
}

/** Of what is end-to-end encrypted: who proves it, and when that was done last. */
export function AgentsBadge({ verified }: { verified: string | null }) {
  return (
    <span className="badge badge-quiet" data-term="agent_verified" data-exact={verified === null ? "No agent has verified it yet." : minute(verified)}>
      <Icon name="lock" />
      content proved only by agents: {verified === null ? "not yet" : relative(verified)}
    </span>
  );
}

const STATUS: Record<RowStatus, [Tone, IconName]> = {
  done: ["good", "check"],
  failed: ["bad", "fail"],
  aborted: ["warn", "stop"],
  expired: ["warn", "clock"],
};

export function StatusBadge({ status }: { status: RowStatus }) {
  const [tone, icon] = STATUS[status];
  return (
    <Badge tone={tone} icon={icon} term="status">
      {status}
    </Badge>
  );
}

const FINDINGS: Record<FindingKind, [Tone, IconName, string]> = {
  incompressible: ["bad", "rise", "incompressible"],
  rewritten: ["warn", "rise", "rewritten"],
  more_new: ["warn", "rise", "more new data"],
  no_duplicates: ["warn", "drop", "no duplicates"],
  compression: ["warn", "drop", "compresses worse"],
  retried: ["warn", "drop", "retried"],
  failed: ["bad", "fail", "failed"],
  read_again: ["quiet", "clock", "read again"],
  first_full: ["quiet", "check", "first backup"],
  clones: ["quiet", "check", "clones"],
};

/** What was found, in two words; the sentences are in the tooltip. */
export function FindingBadge({ finding }: { finding: Finding }) {
  const [tone, icon, word] = FINDINGS[finding.kind];
  return (
    <span className={`badge badge-${tone}`} data-term="finding" data-exact={`${finding.text}. ${finding.cause}`}>
      <Icon name={icon} />
      {word}
    </span>
  );
}

/** The finding where there is only room for an icon: in the column that stays in view. */
export function FindingMark({ finding }: { finding: Finding }) {
  const [tone, icon, word] = FINDINGS[finding.kind];
  return (
    <span className={`flag-mark flag-${tone}`}>
      <Icon name={icon} />
      <span className="visually-hidden">{word}</span>
    </span>
  );
}

/** Marks a restore point that lacks disks; nothing for a complete one. */
export function PartialBadge({ missing }: { missing: readonly string[] }) {
  if (missing.length === 0) return null;
  return (
    <span className="badge badge-warn" data-term="partial" data-exact={`without ${missing.join(", ")}`}>
      <Icon name="drop" />
      partial
    </span>
  );
}

/** Its backup was told to accept that a disk was smaller than before, or gone; nothing for all others. */
export function ChangedBadge({ accepted }: { accepted: boolean }) {
  return accepted ? (
    <Badge tone="warn" icon="drop" term="accepted_change">
      less than before
    </Badge>
  ) : null;
}

/** What keeps a restore point from being deleted; nothing when nothing does. */
export function KeptBadges({ point }: { point: { locked_until: string | null; hold: Hold | null } }) {
  const { locked_until: until, hold } = point;
  return (
    <>
      {until !== null && (
        <span className="badge badge-quiet" data-term="locked" data-exact={`until ${minute(until)}`}>
          <Icon name="lock" />
          locked until {localDay(until)}
        </span>
      )}
      {hold !== null && (
        <span className="badge badge-quiet" data-term="held" data-exact={`since ${minute(hold.since)} by ${hold.by}: ${hold.reason}`}>
          <Icon name="hold" />
          held
        </span>
      )}
    </>
  );
}

/** Marks a restore point that cannot be restored completely; nothing for a whole one. */
export function DamagedBadge({ lost }: { lost: number }) {
  if (lost === 0) return null;
  return (
    <span className="badge badge-bad" data-term="damaged" data-exact={exactBytes(lost)}>
      <Icon name="fail" />
      {bytes(lost)} lost
    </span>
  );
}

const TASK: Record<TaskStatus, [Tone, IconName]> = {
  queued: ["quiet", "clock"],
  running: ["good", "play"],
  paused: ["warn", "pause"],
  interrupted: ["warn", "clock"],
  done: ["good", "check"],
  failed: ["bad", "fail"],
  cancelled: ["quiet", "stop"],
};

export function TaskBadge({ status }: { status: TaskStatus }) {
  const [tone, icon] = TASK[status];
  return (
    <Badge tone={tone} icon={icon} term="task_status">
      {status}
    </Badge>
  );
}

/** `endToEnd`: what the server reads is proved to be what it was sent, and its content only by agents. */
export function VerifyBadge({ verify, endToEnd }: { verify: Verify | null; endToEnd: boolean }) {
  if (verify !== null && endToEnd && verify.ok && !verify.by_agent) {
    return (
      <span className="badge badge-quiet" data-term="verify" data-exact={`${minute(verify.at)} by ${verify.by}: ${verify.detail}. Its content is proved only by agents.`}>
        <Icon name="info" />
        complete, not proved
      </span>
    );
  }
  if (verify === null) {
    return (
      <Badge tone="quiet" icon="info" term="verify">
        not verified
      </Badge>
    );
  }
  const said = `${minute(verify.at)} by ${verify.by}${verify.detail === "" ? "" : `: ${verify.detail}`}`;
  return (
    <span className={`badge badge-${verify.ok ? "good" : "bad"}`} data-term="verify" data-exact={said}>
      <Icon name={verify.ok ? "check" : "fail"} />
      {verify.ok ? "verified" : "damaged"}
    </span>
  );
}
