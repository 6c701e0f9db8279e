/** Above every page while something cannot be restored: which VM, restore point, disk and ranges. */

import { Link } from "wouter";

import { useDamage } from "../api/queries";
import type { DamagedDisk } from "../api/schema";
import { coversAll, may, useWho } from "../api/session";
import { bytes } from "../format/bytes";
import { plural } from "../format/numbers";
import { minute } from "../format/time";
import { Icon } from "./icons";
import { vmPath } from "./location";

/** Named in the banner; the storage page has all of them. */
const NAMED = 3;
/** Ranges named of each. */
const RANGES = 2;

/** `0 B to 64.0 KiB, …`: the first ranges of a disk that are lost. */
export function rangesOf({ listed, ranges }: DamagedDisk, most: number): string {
  const said = listed.slice(0, most).map(({ start, bytes: size }) => `${start.toLocaleString("en-US")}–${(start + size - 1).toLocaleString("en-US")}`);
  const more = ranges - said.length;
  return `bytes ${said.join(", ")}${more > 0 ? ` and ${plural(more, "more range")}` : ""}`;
}

export function DamageBanner() {
  const session = useWho();
  return may(session, "catalog") ? <Banner whole={may(session, "operate") && coversAll(session)} /> : null;
}

function Banner({ whole }: { whole: boolean }) {
  // An error is shown by the page that needs the server; the banner only speaks of damage.
  const known = useDamage({ page_size: NAMED }).data?.pages[0];
  if (known === undefined || known.restore_points === 0) return null;
  const more = known.disks - Math.min(NAMED, known.items.length);
  return (
    <section className="note note-bad banner" aria-label="Damage">
      <Icon name="fail" />
      <div>
        <p className="note-title">
          {plural(known.restore_points, "restore point")} cannot be restored completely: {bytes(known.bytes)} lost
        </p>
        <ul>
          {known.items.slice(0, NAMED).map((item) => (
            <li key={`${item.backup}/${item.disk}`}>
              <Link href={vmPath(item.namespace, item.vm)}>{item.vm}</Link>, disk {item.disk}, restore point of {minute(item.started)}: {rangesOf(item, RANGES)}
            </li>
          ))}
        </ul>
        <p className="muted">
          {more > 0 && `And ${plural(more, "more disk")}. `}The next backup that has this data stores it again and heals them.
          {whole && (
            <>
              {" "}
              <Link href="/storage">Everything that is damaged</Link>
            </>
          )}
        </p>
      </div>
    </section>
  );
}
