/** How much lies here, in the bucket, and in its archive. */

import { Link } from "wouter";

import { useTiers } from "../../api/queries";
import type { BucketState, TierPlace } from "../../api/schema";
import { Async } from "../../components/Feedback";
import { Fact, Facts } from "../../components/Stat";

const sum = ({ places }: BucketState, where: "local" | "both" | "bucket"): number =>
  places.reduce((bytes: number, place: TierPlace) => bytes + place[where].bytes, 0);

/** Of a server that has a bucket. */
export function Places() {
  const tiers = useTiers();
  return (
    <>
      <Async query={tiers} lines={3}>
        {({ bucket }) =>
          bucket !== null && (
            <Facts>
              <Fact term="tier_local" kind="bytes" value={sum(bucket, "local")} />
              <Fact term="tier_both" kind="bytes" value={sum(bucket, "both")} />
              <Fact term="tier_bucket" kind="bytes" value={sum(bucket, "bucket")} />
              <Fact term="tier_archive" kind="bytes" value={bucket.classes.reduce((bytes, of) => bytes + (of.archive ? of.bytes : 0), 0)} />
            </Facts>
          )
        }
      </Async>
      <p>
        <Link href="/bucket">What lies there, how far copies are, and what it costs</Link>
      </p>
    </>
  );
}
