/** Storage: what is on disk, the state of the index, sizes of chunks and compression of regions. */

import { Link } from "wouter";

import { useServer, useStatistics, useStorage } from "../../api/queries";
import type { ContainerTotals, ServerInfo, Storage as StorageState } from "../../api/schema";
import { FileSystemMeter } from "../../charts/Meter";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { Fact, Facts } from "../../components/Stat";
import { glossaryId } from "../../components/Tooltip";
import { TermLabel } from "../../components/Value";
import { bytes } from "../../format/bytes";
import { duration } from "../../format/numbers";
import { second } from "../../format/time";
import { Attribution } from "./Attribution";
import { Lost } from "./Lost";
import { Places } from "./Places";
import { Scrub } from "./Scrub";
import { Statistics } from "./Statistics";

export default function Storage() {
  const storage = useStorage();
  const statistics = useStatistics();
  const server = useServer();
  return (
    <div className="page page-storage">
      <h1>Storage</h1>
      <Async query={storage} height={600} lines={10}>
        {(state) => (
          <>
            {state.read_only_reason !== null && <ReadOnly reason={state.read_only_reason} />}
            <div className="columns">
              <Card title="Free space" className="wide">
                <Space state={state} />
              </Card>
              <Attribution />
              <Card title="Containers" className="wide">
                <SimpleTable caption="Containers by kind and state" columns={CONTAINERS} rows={state.containers} rowKey={(row) => `${row.class}/${row.state}`} />
                <Damage state={state} />
              </Card>
              <Lost />
              <Card title="Scrub" className="wide" hint="Reads everything again in the background, and checks it. It stands back while backups and restores need the disk.">
                <Scrub scrub={state.scrub} />
              </Card>
              <Card title="Index" hint="Records where each chunk is stored. It can always be rebuilt from the containers.">
                <Index state={state} />
              </Card>
              <Card title="Bucket" hint="A second site: a copy of everything in a bucket.">
                <Async query={server}>{(info) => <BucketLink has={info.bucket} />}</Async>
              </Card>
              <Card title="Server">
                <Async query={server}>{(info) => <Server info={info} />}</Async>
              </Card>
              <Async query={statistics} height={320}>
                {(numbers) => <Statistics numbers={numbers} />}
              </Async>
            </div>
          </>
        )}
      </Async>
    </div>
  );
}

function BucketLink({ has }: { has: boolean }) {
  return has ? (
    <Places />
  ) : (
    <p>
      No bucket is configured. <Link href="/bucket">How to set one up</Link>
    </p>
  );
}

function ReadOnly({ reason }: { reason: string }) {
  return (
    <div className="note note-bad" role="alert">
      <Icon name="fail" />
      <div>
        <p className="note-title">The repository is read-only</p>
        <p>{reason}</p>
        <p className="muted">Restores still work. Fix the cause, then restart holdfast-server; its log says more.</p>
      </div>
    </div>
  );
}

const CONTAINERS: SimpleColumn<ContainerTotals>[] = [
  { id: "class", term: "container_class", render: (row) => row.class },
  { id: "state", term: "container_state", render: (row) => row.state },
  { id: "count", term: "containers", kind: "count", value: (row) => row.count },
  { id: "stored", term: "container_stored", kind: "bytes", value: (row) => row.stored_bytes },
  { id: "plain", term: "container_plain", kind: "bytes", value: (row) => row.plain_bytes },
  { id: "factor", term: "local_factor", kind: "factor", value: (row) => (row.stored_bytes > 0 ? row.plain_bytes / row.stored_bytes : null) },
  { id: "chunks", term: "container_chunks", kind: "count", value: (row) => row.chunks },
];

function Space({ state }: { state: StorageState }) {
  const stored = state.containers.reduce((sum, row) => sum + row.stored_bytes, 0);
  return (
    <FileSystemMeter
      parts={[
        { term: "stored_bytes", value: stored, color: "teal" },
        { term: "index_disk_bytes", value: state.index.disk_bytes, color: "blue" },
        { term: "catalog_bytes", value: state.catalog_bytes, color: "violet" },
      ]}
      space={state.space}
    />
  );
}

function Damage({ state: { damage } }: { state: StorageState }) {
  if (damage.length === 0) {
    return (
      <p className="all-well">
        <Icon name="check" /> No known damage.
      </p>
    );
  }
  return (
    <>
      <h3>Known damage</h3>
      <SimpleTable
        caption="Known damage"
        rows={damage}
        rowKey={(row) => `${row.container}/${row.region}`}
        columns={[
          { id: "container", header: "Container", render: (row) => <code>{row.container}</code> },
          { id: "region", header: "Region", render: (row) => (row.region === null ? "all" : String(row.region)) },
          { id: "reason", header: "Reason", render: (row) => row.reason },
          { id: "found", header: "Found", render: (row) => second(row.found) },
        ]}
      />
    </>
  );
}

function Index({ state: { index } }: { state: StorageState }) {
  return (
    <Facts>
      <Fact term="index_entries" kind="count" value={index.entries} />
      <Fact term="index_runs" kind="count" value={index.runs} />
      <Fact term="index_depth" kind="count" value={index.depth} />
      <Fact term="index_disk_bytes" kind="bytes" value={index.disk_bytes} />
      <Fact term="index_filter_bytes" kind="bytes" value={index.filter_bytes} />
      <Fact term="index_fence_bytes" kind="bytes" value={index.fence_bytes} />
      <Fact term="index_memtable_bytes" kind="bytes" value={index.memtable_bytes} />
      <Fact term="index_memtable_entries" kind="count" value={index.memtable_entries} />
      <div className="fact">
        <dt>
          <TermLabel term="index_ram_per_chunk" />
        </dt>
        <dd>
          <span className="value" tabIndex={0} role="note" data-term="index_ram_per_chunk" aria-describedby={glossaryId("index_ram_per_chunk")}>
            {index.ram_bytes_per_chunk.toFixed(2)} B
          </span>
        </dd>
      </div>
      <Fact term="index_covered" kind="count" value={index.covered_containers} />
      <Fact term="index_uncovered" kind="count" value={index.uncovered_containers} />
    </Facts>
  );
}

function Server({ info }: { info: ServerInfo }) {
  const rows: [name: string, value: string][] = [
    ["Version", info.version],
    ["Repository", info.repository],
    ["Started", `${second(info.started)}, ${duration(info.uptime_seconds)} ago`],
    ["Agents connect to", info.grpc_address],
    ["Web and REST", info.http_address],
    ["Certificate SHA-256", info.fingerprint],
    ["Protocol", info.protocol.min === info.protocol.max ? `${info.protocol.max}` : `${info.protocol.min} to ${info.protocol.max}`],
    ["Format", String(info.format_version)],
    ["Chunks", `${bytes(info.chunker.min_bytes)} to ${bytes(info.chunker.max_bytes)}, about ${bytes(info.chunker.avg_bytes)}`],
    ["Extents, regions", `${bytes(info.chunker.extent_bytes)}, ${bytes(info.chunker.region_bytes)}`],
    ["Lease", duration(info.lease_seconds)],
  ];
  return (
    <dl className="facts facts-text">
      {rows.map(([name, value]) => (
        <div key={name} className="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
