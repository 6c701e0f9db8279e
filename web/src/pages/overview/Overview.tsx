/** Overview: what is protected, what it costs, what is running, what needs attention. */

import { useCapacity, useJobs, useTotals } from "../../api/queries";
import { coversAll, useWho } from "../../api/session";
import type { Totals } from "../../api/schema";
import { Async } from "../../components/Feedback";
import { FirstBackup } from "../../components/FirstBackup";
import { Stat } from "../../components/Stat";
import { useNamespace } from "../../components/location";
import { Card } from "../../components/Card";
import { bytes } from "../../format/bytes";
import { factor, plural } from "../../format/numbers";
import { Failures } from "./Failures";
import { Growth } from "./Growth";
import { Jobs } from "./Jobs";
import { Running } from "./Running";
import { Stale } from "./Stale";
import { Windows } from "./Windows";
import { Worst } from "./Worst";

export default function Overview() {
  const namespace = useNamespace();
  const totals = useTotals(namespace);
  // Free space is shared by all namespaces: only for those who may see them all.
  const whole = coversAll(useWho());
  const capacity = useCapacity(whole);
  const jobs = useJobs(namespace);
  return (
    <div className="page page-overview">
      <h1>Overview</h1>
      <Running />
      <Async query={totals} height={130} lines={2}>
        {(sums) => (sums.backups === 0 && sums.windows.every((window) => window.disks === 0) ? <FirstBackup /> : <Headline sums={sums} free={capacity.data?.usable_bytes} />)}
      </Async>
      <div className="columns">
        <Card
          title="Written"
          className="wide"
          hint="Data written by runs, before and after deduplication and compression."
        >
          <Async query={totals} height={180} lines={4}>
            {(sums) => <Windows windows={sums.windows} />}
          </Async>
        </Card>
        {whole && (
          <Card title="Growth and forecast" className="wide">
            <Async query={capacity} height={330}>
              {(data) => <Growth capacity={data} />}
            </Async>
          </Card>
        )}
        <div className="stack">
          <Worst namespace={namespace} />
          <Failures namespace={namespace} />
        </div>
        <div className="stack">
          <Card title="Jobs">
            <Async query={jobs} height={200}>
              {(list) => <Jobs jobs={list.items} />}
            </Async>
          </Card>
          <Stale namespace={namespace} />
        </div>
      </div>
    </div>
  );
}

function Headline({ sums, free }: { sums: Totals; free: number | null | undefined }) {
  const week = sums.windows.find((window) => window.window === "7d")?.total_factor ?? null;
  return (
    <section className="stats" aria-label="At a glance">
      <Stat term="protected_bytes" kind="bytes" value={sums.protected_bytes}>
        {plural(sums.vms, "VM")}, {plural(sums.backups, "restore point")}
      </Stat>
      <Stat term="stored_bytes" kind="bytes" value={sums.stored_bytes}>
        {sums.protected_bytes > 0 ? `${bytes(sums.stored_bytes)} hold ${bytes(allBytes(sums))} of backups` : "nothing yet"}
      </Stat>
      <Stat term="total_factor" kind="factor" value={sums.total_factor}>
        {sums.total_factor === null ? "nothing stored yet" : `1 byte stored for every ${factor(sums.total_factor).replace("×", "")} protected`}
      </Stat>
      {free !== undefined && free !== null && (
        <Stat term="usable_bytes" kind="bytes" value={free}>
          {week === null ? "for backups" : `room for about ${bytes(free * week)} of backups like the last 7 days'`}
        </Stat>
      )}
    </section>
  );
}

const allBytes = (sums: Totals): number => sums.windows.find((window) => window.window === "all")?.pre_comp ?? sums.protected_bytes;
