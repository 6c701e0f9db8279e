/** Restore points, newest first: what each holds, what it added, what keeps it, how to restore it. */

import { useState } from "react";

import type { Backup } from "../../api/schema";
import { may, useWho } from "../../api/session";
import { Command } from "../../components/Command";
import { Empty } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { ChangedBadge, DamagedBadge, KeptBadges, PartialBadge, VerifyBadge } from "../../components/Status";
import { show, TermLabel, tip, type Kind } from "../../components/Value";
import type { Term } from "../../format/definitions";
import { bytes } from "../../format/bytes";
import { count, plural } from "../../format/numbers";
import { minute, second } from "../../format/time";
import { DeletePoints } from "./DeletePoints";
import { InArchive } from "./InArchive";
import { Keeping } from "./Keeping";
import { RestoreCommands } from "./RestoreCommands";
import { tierExact, tierOf } from "./tier";

/** Drawn at once; more on request. */
const STEP = 20;

/** The server takes no more at once. */
const CHOSEN_MAX = 1000;

/** Whether anything keeps it from being deleted. */
const isKept = (point: Backup): boolean => point.locked_until !== null || point.hold !== null;

export function RestorePoints({ points }: { points: readonly Backup[] }) {
  const [limit, setLimit] = useState(STEP);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  // Those the open question is about: they may be gone from the list before the answer is there.
  const [asking, setAsking] = useState<readonly Backup[] | null>(null);
  const who = useWho();
  const mayDelete = may(who, "retain");
  // Operators delete by policies only, and may ask what deleting would free.
  const mayAsk = may(who, "operate");
  const shown = points.slice(0, limit);
  // Only of what is on screen: what cannot be seen is not deleted.
  const selected = shown.filter((point) => chosen.has(point.id) && !isKept(point));
  // Where all of it lies here there is nothing to tell.
  const tiers = points.some((point) => point.places !== null);
  const free = shown.filter((point) => !isKept(point)).slice(0, CHOSEN_MAX);
  const choose = (id: string, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  return (
    <>
      {mayAsk && points.length > 0 && (
        <div className="selection" role="status">
          {selected.length === 0 ? (
            <span className="muted">Select restore points to see what deleting them frees.</span>
          ) : (
            <>
              <span>{plural(selected.length, "restore point")} selected</span>
              <button
                type="button"
                className={`button button-small ${mayDelete ? "button-danger" : ""}`}
                disabled={selected.length > CHOSEN_MAX}
                onClick={() => setAsking(selected)}
              >
                <Icon name={mayDelete ? "trash" : "search"} />
                {mayDelete ? "Delete…" : "What it frees…"}
              </button>
              <button type="button" className="button button-small button-quiet" onClick={() => setChosen(new Set())}>
                Clear
              </button>
            </>
          )}
        </div>
      )}
      {points.length === 0 ? (
        <Empty title="No restore points" />
      ) : (
        <div className="table-scroll">
          <table className="table points">
            <caption className="visually-hidden">Restore points</caption>
            <thead>
              <tr>
                {mayAsk && (
                  <th scope="col" className="choose">
                    <input
                      type="checkbox"
                      aria-label="Select all restore points shown"
                      disabled={free.length === 0}
                      checked={free.length > 0 && selected.length === free.length}
                      onChange={(event) => setChosen(new Set(event.target.checked ? free.map((point) => point.id) : []))}
                    />
                  </th>
                )}
                <th scope="col"><TermLabel term="finished" /></th>
                <th scope="col"><TermLabel term="job" /></th>
                <th scope="col" className="number"><TermLabel term="data_bytes" /></th>
                <th scope="col" className="number"><TermLabel term="new_bytes" /></th>
                <th scope="col" className="number"><TermLabel term="added_bytes" /></th>
                <th scope="col" className="number"><TermLabel term="exclusive_bytes" /></th>
                {tiers && <th scope="col"><TermLabel term="point_tier" /></th>}
                <th scope="col"><TermLabel term="verify" /></th>
                <th scope="col"><TermLabel term="last_proven" /></th>
                <th scope="col">Restore</th>
              </tr>
            </thead>
            {shown.map((point) => (
              <Point
                key={point.id}
                point={point}
                chosen={chosen.has(point.id)}
                mayKeep={mayDelete}
                tiers={tiers}
                {...(mayAsk ? { onChoose: (on: boolean) => choose(point.id, on) } : {})}
              />
            ))}
          </table>
        </div>
      )}
      {points.length > limit && (
        <button type="button" className="button" onClick={() => setLimit(limit + STEP)}>
          Show more
        </button>
      )}
      {asking !== null && (
        <DeletePoints
          points={asking}
          mayDelete={mayDelete}
          onClose={() => setAsking(null)}
          onDeleted={() => {
            setAsking(null);
            setChosen(new Set());
          }}
        />
      )}
    </>
  );
}

interface PointProps {
  point: Backup;
  chosen: boolean;
  /** Whether the role locks and holds. */
  mayKeep: boolean;
  /** Whether the table has a column of where data lies. */
  tiers: boolean;
  /** Absent where the role may not even ask what deleting frees. */
  onChoose?: (on: boolean) => void;
}

function Point({ point, chosen, mayKeep, tiers, onChoose }: PointProps) {
  const [open, setOpen] = useState(false);
  const data = point.disks.reduce((sum, disk) => sum + disk.data_bytes, 0);
  const kept = isKept(point);
  const proven = point.end_to_end ? point.agent_verified : point.last_proven;
  return (
    <tbody className={open ? "is-open" : ""}>
      <tr className={chosen && !kept ? "is-chosen" : ""}>
        {onChoose !== undefined && (
          <td className="choose">
            <input
              type="checkbox"
              aria-label={`Select the restore point of ${second(point.finished)}`}
              disabled={kept}
              checked={chosen && !kept}
              onChange={(event) => onChoose(event.target.checked)}
            />
          </td>
        )}
        <th scope="row" data-term="finished" data-exact={`${second(point.finished)}, ${point.id}`}>
          <span className="nowrap">{minute(point.finished)}</span> <PartialBadge missing={point.missing_disks} /> <ChangedBadge accepted={point.accepted_change} /> <DamagedBadge lost={point.damaged_bytes} />{" "}
          <KeptBadges point={point} />
        </th>
        <td>{point.job}</td>
        <Number term="data_bytes" kind="bytes" value={data} />
        <Number term="new_bytes" kind="bytes" value={point.new_bytes} />
        <Number term="added_bytes" kind="bytes" value={point.post_lc + point.meta_bytes} />
        <OnlyHere point={point} />
        {tiers && (
          <td data-term="point_tier" data-exact={point.places === null ? "Newer than the last reclaim" : tierExact(point.places)}>
            {point.places === null ? <span className="muted">not yet known</span> : tierOf(point.places)}
          </td>
        )}
        <td><VerifyBadge verify={point.verify} endToEnd={point.end_to_end} /></td>
        <td className="nowrap" {...tip("last_proven", "time", proven)}>
          {proven === null ? <span className="muted">not yet</span> : show("ago", proven)}
          {point.end_to_end && <span className="muted"> by agents</span>}
        </td>
        <td>
          <button type="button" className="button button-small" aria-expanded={open} onClick={() => setOpen(!open)}>
            Commands
            <Icon name="chevron" className="menu-chevron" />
          </button>
        </td>
      </tr>
      {open && (
        <tr className="point-more">
          <td colSpan={9 + (tiers ? 1 : 0) + (onChoose === undefined ? 0 : 1)}>
            <p className="muted">
              Restore point <code>{point.id}</code>, run <code>{point.run}</code>, taken on {point.client_host}
            </p>
            {mayKeep && <Keeping point={point} />}
            <InArchive point={point} />
            <RestoreCommands commands={point.restore_commands} />
            <p>To read it back and check every fingerprint:</p>
            <Command text={`holdfast verify ${point.id}`} label="Verify" />
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** What only it has, with the date of that. */
function OnlyHere({ point: { exclusive_bytes, attributed_at } }: { point: Backup }) {
  const exact = exclusive_bytes === null ? "Not counted since a restore point came" : `${count(exclusive_bytes)} bytes, as of ${minute(attributed_at)}`;
  return (
    <td className="number" data-term="exclusive_bytes" data-exact={exact}>
      {exclusive_bytes === null ? "" : bytes(exclusive_bytes)}
    </td>
  );
}

function Number({ term, kind, value }: { term: Term; kind: Kind; value: number | null }) {
  return (
    <td className="number" {...tip(term, kind, value)}>
      {show(kind, value)}
    </td>
  );
}
