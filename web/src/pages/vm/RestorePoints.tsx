/** Restore points, newest first: what each holds, what it added, how to restore it. */

import { useState } from "react";

import type { Backup } from "../../api/schema";
import { Command } from "../../components/Command";
import { Empty } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { DamagedBadge, PartialBadge, VerifyBadge } from "../../components/Status";
import { show, TermLabel, tip, type Kind } from "../../components/Value";
import type { Term } from "../../format/definitions";
import { minute, second } from "../../format/time";
import { RestoreCommands } from "./RestoreCommands";

/** Drawn at once; more on request. */
const STEP = 20;

export function RestorePoints({ points }: { points: readonly Backup[] }) {
  const [limit, setLimit] = useState(STEP);
  if (points.length === 0) return <Empty title="No restore points" />;
  return (
    <>
      <div className="table-scroll">
        <table className="table points">
          <caption className="visually-hidden">Restore points</caption>
          <thead>
            <tr>
              <th scope="col"><TermLabel term="finished" /></th>
              <th scope="col"><TermLabel term="job" /></th>
              <th scope="col" className="number"><TermLabel term="data_bytes" /></th>
              <th scope="col" className="number"><TermLabel term="new_bytes" /></th>
              <th scope="col" className="number"><TermLabel term="added_bytes" /></th>
              <th scope="col" className="number"><TermLabel term="exclusive_bytes" /></th>
              <th scope="col"><TermLabel term="verify" /></th>
              <th scope="col"><TermLabel term="last_proven" /></th>
              <th scope="col">Restore</th>
            </tr>
          </thead>
          {points.slice(0, limit).map((point) => (
            <Point key={point.id} point={point} />
          ))}
        </table>
      </div>
      {points.length > limit && (
        <button type="button" className="button" onClick={() => setLimit(limit + STEP)}>
          Show more
        </button>
      )}
    </>
  );
}

function Point({ point }: { point: Backup }) {
  const [open, setOpen] = useState(false);
  const data = point.disks.reduce((sum, disk) => sum + disk.data_bytes, 0);
  return (
    <tbody className={open ? "is-open" : ""}>
      <tr>
        <th scope="row" data-term="finished" data-exact={`${second(point.finished)}, ${point.id}`}>
          <span className="nowrap">{minute(point.finished)}</span> <PartialBadge missing={point.missing_disks} /> <DamagedBadge lost={point.damaged_bytes} />
        </th>
        <td>{point.job}</td>
        <Number term="data_bytes" kind="bytes" value={data} />
        <Number term="new_bytes" kind="bytes" value={point.new_bytes} />
        <Number term="added_bytes" kind="bytes" value={point.post_lc + point.meta_bytes} />
        <Number term="exclusive_bytes" kind="bytes" value={point.exclusive_bytes} />
        <td><VerifyBadge verify={point.verify} /></td>
        <td className="nowrap" {...tip("last_proven", "time", point.last_proven)}>
          {point.last_proven === null ? <span className="muted">not yet</span> : show("ago", point.last_proven)}
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
          <td colSpan={9}>
            <p className="muted">
              Restore point <code>{point.id}</code>, run <code>{point.run}</code>, taken on {point.client_host}
            </p>
            <RestoreCommands commands={point.restore_commands} />
            <p>To read it back and check every fingerprint:</p>
            <Command text={`holdfast verify ${point.id}`} label="Verify" />
          </td>
        </tr>
      )}
    </tbody>
  );
}

function Number({ term, kind, value }: { term: Term; kind: Kind; value: number | null }) {
  return (
    <td className="number" {...tip(term, kind, value)}>
      {show(kind, value)}
    </td>
  );
}
