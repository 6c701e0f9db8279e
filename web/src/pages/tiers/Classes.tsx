/** What lies in which storage class, and what was asked of the archive this month. */

import type { BucketState, TierClass } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { bytes as size } from "../../format/bytes";
import { plural } from "../../format/numbers";

const COLUMNS: SimpleColumn<TierClass>[] = [
  { id: "class", term: "tier_class", render: (row) => row.class },
  { id: "reading", header: "Reading", render: (row) => reading(row) },
  { id: "bytes", term: "tier_class_bytes", kind: "bytes", value: (row) => row.bytes },
  { id: "blobs", term: "tier_class_blobs", kind: "count", value: (row) => row.blobs },
  { id: "thawed", term: "tier_class_thawed", kind: "count", value: (row) => (row.archive ? row.thawed : null) },
  { id: "cost", term: "tier_class_cost", kind: "dollars", value: (row) => row.cost },
  { id: "keeping", term: "tier_class_keeping", kind: "dollars", value: (row) => row.keeping_month },
];

const reading = ({ archive }: TierClass): string => (archive ? "after thawing, which takes hours" : "at any time");

interface Asked {
  what: string;
  objects: number;
  bytes: number | null;
  cost: number | null;
}

const ASKED: SimpleColumn<Asked>[] = [
  { id: "what", header: "", render: (row) => row.what },
  { id: "objects", term: "tier_asked_objects", kind: "count", value: (row) => row.objects },
  { id: "bytes", term: "tier_asked_bytes", kind: "bytes", value: (row) => row.bytes },
  { id: "cost", term: "tier_asked_cost", kind: "dollars", value: (row) => row.cost },
];

export function Classes({ bucket: { classes, month, kept_back } }: { bucket: BucketState }) {
  const asked: Asked[] = [
    ...month.thaws.map(({ class: from, speed, objects, bytes, cost }) => ({ what: `Thawed from ${from} (${speed})`, objects, bytes, cost })),
    ...month.class_changes.map(({ class: to, objects, cost }) => ({ what: `Moved to ${to}`, objects, bytes: null, cost })),
  ];
  return (
    <>
      <SimpleTable caption="Storage classes" columns={COLUMNS} rows={classes} rowKey={(row) => row.class} />
      {kept_back != null && kept_back.containers > 0 && (
        <p>
          {plural(kept_back.containers, "container")} of {size(kept_back.bytes)} stay out of the archive: policies will delete what needs them within
          the {kept_back.minimum_days} days for which {kept_back.class} is paid at least.
        </p>
      )}
      {asked.length > 0 && (
        <>
          <h3>In {month.month}</h3>
          <SimpleTable caption="Asked of the archive" columns={ASKED} rows={asked} rowKey={(row) => row.what} />
        </>
      )}
    </>
  );
}
