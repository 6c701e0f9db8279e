/** What the REST interface answers. Mirrors its contract; bytes are integers, times RFC 3339 in UTC. */

export type Action = "catalog" | "report" | "operate" | "manage_tokens" | (string & {});
export type Role = "backup" | "restore" | "operator" | "admin";

export interface Session {
  name: string;
  role: Role;
  /** Empty: all namespaces. */
  namespaces: string[];
  actions: Action[];
  csrf: string | null;
  expires: string | null;
  version: string;
}

export interface ServerInfo {
  version: string;
  repository: string;
  started: string;
  uptime_seconds: number;
  grpc_address: string;
  http_address: string;
  fingerprint: string;
  protocol: { min: number; max: number };
  read_only_reason: string | null;
  lease_seconds: number;
  format_version: number;
  chunker: {
    min_bytes: number;
    avg_bytes: number;
    max_bytes: number;
    extent_bytes: number;
    region_bytes: number;
  };
}

/** A list with offset paging. */
export interface Page<T> {
  items: T[];
  total: number;
  offset: number;
}

/** A list with keyset paging. */
export interface Keyset<T> {
  items: T[];
  next_page_token: string | null;
}

export interface Namespace {
  name: string;
  created: string;
  vms: number;
  backups: number;
  stored_bytes: number;
}

export interface Verify {
  at: string;
  by: string;
  ok: boolean;
  detail: string;
}

export interface Vm {
  namespace: string;
  vm: string;
  backups: number;
  disks: number;
  first: string | null;
  latest: { id: string; started: string; finished: string; job: string } | null;
  virtual_bytes: number;
  protected_bytes: number;
  stored_bytes: number;
  new_bytes_30d: number;
  total_factor: number | null;
  last_status: RowStatus | null;
  last_error: string | null;
  stale: boolean;
  verify: Verify | null;
}

export interface VmDisk {
  disk: string;
  size_bytes: number;
  data_bytes: number;
  stored_bytes: number;
}

export interface VmDetail extends Vm {
  disk_list: VmDisk[];
}

export interface Backup {
  id: string;
  namespace: string;
  vm: string;
  job: string;
  run: string;
  client_host: string;
  started: string;
  finished: string;
  disks: { name: string; size_bytes: number; data_bytes: number }[];
  new_bytes: number;
  post_lc: number;
  meta_bytes: number;
  verify: Verify | null;
  restore_commands: { disk: string; command: string }[];
}

export interface Job {
  namespace: string;
  job: string;
  runs: number;
  vms: number;
  last_run: { id: string; started: string; finished: string; disks: number; failed: number } | null;
  bytes: number;
  new_bytes: number;
  stored_bytes: number;
  global_factor: number | null;
  local_factor: number | null;
  total_factor: number | null;
}

export type RowStatus = "done" | "failed" | "aborted" | "expired" | "unknown";

/** The columns of the compression details, named as in the TSV. */
export interface DetailColumns {
  namespace: string;
  job: string;
  run: string;
  vm: string;
  disk: string;
  backup: string;
  status: RowStatus;
  started: string;
  finished: string;
  seconds: number;
  virtual_bytes: number;
  bytes: number;
  read_bytes: number;
  unchanged_bytes: number;
  dup_bytes: number;
  new_bytes: number;
  post_lc: number;
  meta_bytes: number;
  wire_bytes: number;
  global_factor: number | null;
  local_factor: number | null;
  "bytes/post_lc": number | null;
  reduction_pct: number | null;
  chunks: number;
  new_chunks: number;
  mb_per_s: number | null;
  error: string;
}

export interface Flag {
  kind: "factor_drop" | "much_new" | "failed" | (string & {});
  text: string;
}

export interface DetailRow extends DetailColumns {
  id: string;
  /** Total factors of this disk's latest runs, oldest first. */
  trend: (number | null)[];
  flag: Flag | null;
}

export interface Explanation {
  sentences: string[];
  /** `null`: too few earlier runs. */
  usual: { rows: number; new_bytes: number | null; total_factor: number | null } | null;
  extents: {
    total: number;
    changed: number;
    changed_first_time: number;
    newly_written: number;
    compared_backups: number;
  } | null;
}

export interface DetailWithExplanation extends DetailRow {
  explanation: Explanation;
}

export type GroupBy = "run" | "vm" | "job" | "disk" | "namespace" | "repository";

export interface TotalsRow {
  namespace: string;
  job: string;
  vm: string;
  disk: string;
  run: string;
  rows: number;
  failed: number;
  started: string | null;
  finished: string | null;
  virtual_bytes: number;
  bytes: number;
  read_bytes: number;
  unchanged_bytes: number;
  dup_bytes: number;
  new_bytes: number;
  post_lc: number;
  meta_bytes: number;
  wire_bytes: number;
  chunks: number;
  new_chunks: number;
  global_factor: number | null;
  local_factor: number | null;
  "bytes/post_lc": number | null;
  reduction_pct: number | null;
  trend: (number | null)[];
}

export interface SeriesGroup {
  namespace: string;
  name: string;
  pre_comp: number[];
  new_bytes: number[];
  post_lc: number[];
  meta_bytes: number[];
  /** Cumulative at the end of each day. */
  stored: number[];
  protected: number[];
  global_factor: (number | null)[];
  local_factor: (number | null)[];
  total_factor: (number | null)[];
  failed: number[];
}

export interface Series {
  days: string[];
  groups: SeriesGroup[];
}

export interface TotalsWindow {
  window: "24h" | "7d" | "all" | (string & {});
  runs: number;
  disks: number;
  failed: number;
  pre_comp: number;
  new_bytes: number;
  post_comp: number;
  meta_bytes: number;
  global_factor: number | null;
  local_factor: number | null;
  total_factor: number | null;
  reduction_pct: number | null;
}

export interface Totals {
  vms: number;
  backups: number;
  virtual_bytes: number;
  protected_bytes: number;
  stored_bytes: number;
  total_factor: number | null;
  windows: TotalsWindow[];
}

export interface Capacity {
  total_bytes: number;
  free_bytes: number;
  reserve_bytes: number;
  usable_bytes: number;
  repository_bytes: number;
  catalog_bytes: number;
  index_bytes: number;
  history: { day: string; stored_bytes: number }[];
  growth: { days_observed: number; bytes_per_day: number; low: number; high: number } | null;
  forecast: {
    state: "growing" | "not_growing" | "too_early";
    full_on: string | null;
    earliest: string | null;
    latest: string | null;
    confidence_pct: number;
    text: string;
  };
}

export interface LiveDisk {
  name: string;
  size_bytes: number;
  done_bytes: number;
  unchanged_bytes: number;
  dup_bytes: number;
  new_bytes: number;
  wire_bytes: number;
  stored_bytes: number;
  finished: boolean;
}

export interface Activity {
  session: string;
  backup: string;
  run: string;
  namespace: string;
  vm: string;
  job: string;
  host: string;
  started: string;
  last_seen: string;
  bytes_total: number;
  bytes_done: number;
  bytes_per_second: number;
  eta_seconds: number | null;
  disks: LiveDisk[];
}

export interface ActivityList {
  now: string;
  sessions: Activity[];
}

export interface ContainerTotals {
  class: string;
  state: string;
  count: number;
  stored_bytes: number;
  plain_bytes: number;
  chunks: number;
}

export interface Storage {
  containers: ContainerTotals[];
  damage: { container: string; region: number | null; reason: string; found: string }[];
  catalog_bytes: number;
  index: {
    entries: number;
    runs: number;
    depth: number;
    filter_bytes: number;
    fence_bytes: number;
    memtable_bytes: number;
    memtable_entries: number;
    disk_bytes: number;
    ram_bytes_per_chunk: number | null;
    covered_containers: number;
    uncovered_containers: number;
  };
  space: { total_bytes: number; free_bytes: number; reserve_bytes: number };
  read_only_reason: string | null;
}

export interface StorageStatistics {
  containers: number;
  sampled_containers: number;
  regions: number;
  chunks: number;
  raw_regions: number;
  region_factor: { edges: number[]; regions: number[]; plain_bytes: number[]; stored_bytes: number[] };
  chunk_bytes: { edges: number[]; chunks: number[]; bytes: number[] };
}

export interface TokenRecord {
  id: string;
  name: string;
  role: Role;
  namespaces: string[];
  created: string;
  expires: string | null;
  revoked: string | null;
  last_used: string | null;
  current: boolean;
}

export interface NewToken {
  name: string;
  role: Role;
  namespaces: string[];
  expires_in?: string;
}

export interface AuditEntry {
  id: string | number;
  at: string;
  who: string;
  action: string;
  object: string;
  detail: string;
}

export interface Changed {
  what: ("details" | "backups" | "tokens" | (string & {}))[];
}
