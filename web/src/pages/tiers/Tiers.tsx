/** The bucket: what lies where, how far copies are, what is asked of it, and what it costs. */

import type { ReactNode } from "react";

import { useTiers } from "../../api/queries";
import type { BucketState, TierPlace } from "../../api/schema";
import { coversEveryVm, useWho } from "../../api/session";
import { Card } from "../../components/Card";
import { Command } from "../../components/Command";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Fact, Facts, Stat } from "../../components/Stat";
import { bytes } from "../../format/bytes";
import { plural } from "../../format/numbers";
import { minute, second } from "../../format/time";
import { Audit } from "./Audit";
import { Classes } from "./Classes";
import { Costs } from "./Costs";
import { Requests } from "./Requests";
import { SetUp } from "./SetUp";
import { Thaws } from "./Thaws";

export default function Tiers() {
  const tiers = useTiers();
  return (
    <div className="page page-tiers">
      <h1>Bucket</h1>
      <Async query={tiers} height={600} lines={10}>
        {({ bucket }) => (bucket === null ? <SetUp /> : <Bucket bucket={bucket} />)}
      </Async>
    </div>
  );
}

function Bucket({ bucket }: { bucket: BucketState }) {
  const everyVm = coversEveryVm(useWho());
  return (
    <>
      <Notes bucket={bucket} />
      <div className="columns">
        <Card title="Copies" className="wide" hint={<code>{bucket.location}</code>}>
          <Copies bucket={bucket} />
        </Card>
        <Card title="What lies where" className="wide" hint={`As of ${second(bucket.places_found)}, as the data folder and the record of the bucket say.`}>
          <SimpleTable caption="What lies where" columns={PLACES} rows={bucket.places} rowKey={(row) => row.kind} />
        </Card>
        <Card title="Storage classes" className="wide" hint={`What is copied is put into ${bucket.class}.`}>
          <Classes bucket={bucket} />
        </Card>
        {bucket.classes.some((of) => of.archive) && everyVm && (
          <Card title="Being thawed" className="wide">
            <Thaws />
          </Card>
        )}
        <Card title="Audit" className="wide" hint="What someone deletes, cuts off or replaces in the bucket is found before a restore needs it.">
          <Audit bucket={bucket} />
        </Card>
        <Card title="Costs" className="wide" hint={<Prices bucket={bucket} />}>
          <Costs bucket={bucket} />
        </Card>
        <Card title="Requests" className="wide" hint="Those of this server, failed ones included; commands such as recover make some of their own.">
          <Requests bucket={bucket} />
        </Card>
      </div>
    </>
  );
}

/** What someone should do something about. */
function Notes({ bucket }: { bucket: BucketState }) {
  const { other, take_over: takeOver } = bucket.writer;
  return (
    <>
      {!bucket.configured && (
        <Note title="The settings name no bucket any more">
          <p>Nothing is copied, and what lies in the bucket alone cannot be read. Set s3, and what else the bucket needs, and restart holdfast-server.</p>
        </Note>
      )}
      {bucket.failure !== null && (
        <Note title="Copying does not go on">
          <p className="break">{bucket.failure}</p>
          <p className="muted">Backups and restores go on; copies are tried again by themselves.</p>
        </Note>
      )}
      {other !== null && (
        <Note title={`Another server writes to the bucket: ${other.name}`}>
          <p>It has done so since {minute(other.since)}; from here nothing is copied. Only when that server is gone for good:</p>
          {takeOver !== null && <Command text={takeOver} />}
        </Note>
      )}
      {bucket.copies.unreadable.length > 0 && (
        <Note title={`${plural(bucket.copies.unreadable.length, "blob")} cannot be read here, so the bucket has no copy`}>
          <p className="break">{bucket.copies.unreadable.slice(0, 5).join(", ")}</p>
        </Note>
      )}
    </>
  );
}

function Note({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div className="note note-warn" role="alert">
      <Icon name="warn" />
      <div>
        <p className="note-title">{title}</p>
        {children}
      </div>
    </div>
  );
}

function Copies({ bucket }: { bucket: BucketState }) {
  const { copies, writer } = bucket;
  return (
    <>
      <div className="stats">
        <Stat term="tier_lag" kind="seconds" value={copies.lag_seconds}>
          {copies.copied_up_to === null ? "Not everything was copied yet" : `Everything until ${second(copies.copied_up_to)} is there`}
        </Stat>
        <Stat term="tier_waiting_bytes" kind="bytes" value={copies.waiting_bytes}>
          {copies.comparing ? "The data folder is being compared with the bucket" : plural(copies.waiting_blobs, "blob")}
        </Stat>
      </div>
      <Facts>
        <Fact term="tier_copied" kind="bytes" value={copies.copied_bytes} />
        <Fact term="tier_removals" kind="count" value={copies.removals} />
      </Facts>
      <p>{mode(bucket)}</p>
      {writer.own !== null && writer.other === null && (
        <p className="muted">
          This server writes to the bucket since {minute(writer.own.since)}, as {writer.own.name}.
        </p>
      )}
    </>
  );
}

function mode({ mode: of, move_after_days: days, move_until_free: free }: BucketState): string {
  if (of === "primary") return `Mode: primary. A backup counts when the bucket has it; data lies there alone, while less than ${free} % of the volume is free.`;
  if (of === "copy") return "Mode: copy. Everything lies here, and a copy of it in the bucket.";
  return `Mode: move. What only restore points older than ${plural(days ?? 0, "day")} need lies in the bucket alone, while less than ${free} % of the volume is free.`;
}

function Prices({ bucket: { prices } }: { bucket: BucketState }) {
  return (
    <>
      By the list prices of Amazon S3 in {prices.region} as of {prices.as_of}, each storage class by its own.
      {!prices.applies && " The bucket is elsewhere: this is what the same would cost at Amazon."}
    </>
  );
}

/** Bytes, and in words how many blobs. */
const place = (of: "local" | "both" | "bucket", term: "tier_local" | "tier_both" | "tier_bucket"): SimpleColumn<TierPlace>[] => [
  { id: of, term, kind: "bytes", value: (row) => row[of].bytes },
  { id: `${of}_blobs`, header: "Blobs", kind: "count", value: (row) => row[of].blobs },
];

const PLACES: SimpleColumn<TierPlace>[] = [
  { id: "kind", term: "tier_kind", render: (row) => row.kind },
  ...place("local", "tier_local"),
  ...place("both", "tier_both"),
  ...place("bucket", "tier_bucket"),
  { id: "all", header: "In all", render: (row) => bytes(row.local.bytes + row.both.bytes + row.bucket.bytes) },
];
