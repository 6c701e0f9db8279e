/** Everything that cannot be restored, by restore point, disk and range; nothing when all is well. */

import { Link } from "wouter";

import { useDamage } from "../../api/queries";
import type { DamagedDisk } from "../../api/schema";
import { Card } from "../../components/Card";
import { rangesOf } from "../../components/DamageBanner";
import { Async } from "../../components/Feedback";
import { vmPath } from "../../components/location";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { bytes } from "../../format/bytes";
import { plural } from "../../format/numbers";
import { minute } from "../../format/time";

const PAGE = 100;
const RANGES = 6;

const COLUMNS: SimpleColumn<DamagedDisk>[] = [
  { id: "vm", term: "vm", render: (row) => <Link href={vmPath(row.namespace, row.vm)}>{row.vm}</Link> },
  { id: "disk", term: "disk", render: (row) => row.disk },
  { id: "point", header: "Restore point", render: (row) => <span className="nowrap" data-exact={row.backup}>{minute(row.started)}</span> },
  { id: "bytes", term: "damaged_bytes", kind: "bytes", value: (row) => row.bytes },
  { id: "ranges", header: "Where", render: (row) => <span className="break">{rangesOf(row, RANGES)}</span> },
  { id: "found", header: "Found", render: (row) => <span className="nowrap">{minute(row.found)}</span> },
];

export function Lost() {
  const damage = useDamage({ page_size: PAGE });
  const first = damage.data?.pages[0];
  // Where no answer came, nothing is known to be well.
  if (first === undefined ? damage.error === null : first.restore_points === 0) return null;
  const hint =
    first &&
    `${plural(first.restore_points, "restore point")}, ${plural(first.disks, "disk")}, ${bytes(first.bytes)}. The next backup that has this data heals them; holdfast restore --keep-going restores the rest.`;
  const rows = damage.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Card title="What cannot be restored" className="wide" hint={hint}>
      <Async query={damage}>
        {() => <SimpleTable caption="What cannot be restored" columns={COLUMNS} rows={rows} rowKey={(row) => `${row.backup}/${row.disk}`} />}
      </Async>
      {damage.hasNextPage && (
        <button type="button" className="button" disabled={damage.isFetchingNextPage} onClick={() => void damage.fetchNextPage()}>
          {damage.isFetchingNextPage ? "Loading…" : "Load more"}
        </button>
      )}
    </Card>
  );
}
