/** Each job, its last run and what it has cost. */

import { Link } from "wouter";

import type { Job } from "../../api/schema";
import { Empty } from "../../components/Feedback";
import { link } from "../../components/location";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Badge } from "../../components/Status";
import { plural } from "../../format/numbers";
import { minute, relative } from "../../format/time";

const COLUMNS: SimpleColumn<Job>[] = [
  { id: "job", term: "job", render: (job) => <Link href={link("/details", { namespace: job.namespace, job: job.job })}>{job.job}</Link> },
  { id: "last", header: "Last run", render: (job) => <LastRun job={job} /> },
  { id: "vms", term: "vms", kind: "count", value: (job) => job.vms },
  { id: "stored", term: "added_bytes", header: "Stored", kind: "bytes", value: (job) => job.stored_bytes },
  { id: "total", term: "bytes/post_lc", kind: "factor", value: (job) => job.total_factor },
];

function LastRun({ job: { last_run: run, failing_vms: failing } }: { job: Job }) {
  if (run === null) return "–";
  return (
    <span className="nowrap" data-term="finished" data-exact={minute(run.finished)}>
      {failing > 0 ? (
        <Badge tone="bad" icon="fail">
          {plural(failing, "VM")} failed
        </Badge>
      ) : (
        <Badge tone="good" icon="check">
          done
        </Badge>
      )}{" "}
      <span className="muted">{relative(run.finished)}</span>
    </span>
  );
}

export function Jobs({ jobs }: { jobs: readonly Job[] }) {
  if (jobs.length === 0) {
    return (
      <Empty title="No jobs yet">
        <p>
          The first backup that names a job creates it: <code>holdfast backup --job nightly …</code>
        </p>
      </Empty>
    );
  }
  return <SimpleTable caption="Jobs" columns={COLUMNS} rows={jobs} rowKey={(job) => `${job.namespace}/${job.job}`} />;
}
