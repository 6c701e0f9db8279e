/** How far the scrub is, and what it has proven. */

import type { Scrub as State } from "../../api/schema";
import { Fact, Facts } from "../../components/Stat";
import { count, share } from "../../format/numbers";
import { minute } from "../../format/time";

function phase({ pass, phase: at, done, total, ended }: State): string {
  if (pass === 0) return "No pass has begun yet.";
  if (at === "idle") return ended === null ? "No pass is under way." : `The last pass ended ${minute(ended)}.`;
  const what = at === "containers" ? "containers" : "restore points";
  return `Pass ${pass} reads ${what}: ${share(done, total)} of ${count(total)}.`;
}

export function Scrub({ scrub }: { scrub: State }) {
  return (
    <>
      <p>{phase(scrub)}</p>
      <Facts>
        <Fact term="scrub_pass" kind="count" value={scrub.pass} />
        <Fact term="unproven_containers" kind="count" value={scrub.containers_unproven} />
        <Fact term="unproven_points" kind="count" value={scrub.restore_points_unproven} />
        <Fact term="oldest_proof" kind="ago" value={scrub.oldest_container} />
      </Facts>
    </>
  );
}
