/**
 * The glossary: what every number means, in one place. Column names are those of the compression details
 * (the TSV's header). A tooltip shows `label`, `text` and, where there is one, the exact value.
 */

export interface Definition {
  /** Its name on a page. */
  label: string;
  /** What it means, in one or two sentences. */
  text: string;
  /** Unit it is counted in. */
  unit?: string;
}

const define = <T extends Record<string, Definition>>(glossary: T) => glossary;

export const DEFINITIONS = define({
  // Columns of the compression details.
  namespace: { label: "Namespace", text: "Tenant the VM belongs to. Data is deduplicated within a namespace only." },
  job: { label: "Job", text: "Name of the job that made the backup (backup --job)." },
  run: { label: "Run", text: "One execution of a job, which backs up each of its VMs once." },
  vm: { label: "VM", text: "The virtual machine that was backed up." },
  disk: { label: "Disk", text: "Name of the virtual disk within the VM." },
  backup: { label: "Backup", text: "Identifier of the restore point; empty when the run did not create one." },
  status: {
    label: "Status",
    text: "done: a restore point exists. failed: the agent or the server gave up. aborted: a user stopped it. expired: the agent stopped responding and its lease ran out.",
  },
  started: { label: "Started", text: "When the run started to read this disk, in your time zone." },
  finished: { label: "Finished", text: "When the run finished with this disk, in your time zone." },
  seconds: { label: "Duration", text: "From start to finish.", unit: "seconds" },
  virtual_bytes: { label: "Disk size", text: "Size of the virtual disk, including holes and zeros.", unit: "bytes" },
  bytes: {
    label: "Pre-comp",
    text: "Logical bytes of the disk without holes and zeros: what was protected, before deduplication and compression.",
    unit: "bytes",
  },
  read_bytes: { label: "Read", text: "Bytes the agent read from the disk during the run.", unit: "bytes" },
  unchanged_bytes: {
    label: "Unchanged",
    text: "Part of pre-comp in 4 MiB extents that are identical to the previous backup: neither cut into chunks nor sent.",
    unit: "bytes",
  },
  dup_bytes: {
    label: "Duplicate",
    text: "Part of pre-comp in changed extents whose chunks were already in the repository.",
    unit: "bytes",
  },
  new_bytes: {
    label: "New",
    text: "Part of pre-comp that was not yet in the repository: what is left after deduplication (global compression).",
    unit: "bytes",
  },
  post_lc: {
    label: "Post-comp",
    text: "Bytes added to data containers after deduplication and local compression, headers and directories included (post_lc).",
    unit: "bytes",
  },
  meta_bytes: {
    label: "Metadata",
    text: "Bytes added to recipe containers: the recipes that rebuild the disk from its chunks.",
    unit: "bytes",
  },
  wire_bytes: { label: "Sent", text: "Bytes the agent sent over the network for this disk.", unit: "bytes" },
  global_factor: {
    label: "Global",
    text: "Global compression: pre-comp of restore points ÷ new bytes, those of failed attempts before them included. What deduplication saved; a dash means that nothing was new.",
    unit: "×",
  },
  local_factor: {
    label: "Local",
    text: "Local compression: new bytes ÷ post-comp, those of failed attempts before it included. What zstd saved on new data.",
    unit: "×",
  },
  "bytes/post_lc": {
    label: "Total factor",
    text: "Total compression, deduplication and compression together: pre-comp of restore points ÷ post-comp, that of failed attempts before them included.",
    unit: "×",
  },
  reduction_pct: { label: "Reduction", text: "Share of pre-comp that did not have to be stored: 100 × (1 − post-comp ÷ pre-comp).", unit: "%" },
  chunks: { label: "Chunks", text: "Pieces of 8 to 64 KiB that the changed extents were cut into.", unit: "chunks" },
  new_chunks: { label: "New chunks", text: "Chunks that were not yet in the repository.", unit: "chunks" },
  mb_per_s: { label: "Speed", text: "Pre-comp megabytes (10⁶ bytes) per second of the run's duration.", unit: "MB/s" },
  error: { label: "Error", text: "Why the run failed, in the words of the agent or the server." },
  retried_post_lc: {
    label: "Retried",
    text: "Post-comp of the attempts on this disk that made no restore point since its last one, where this run made one. The factors count it.",
    unit: "bytes",
  },
  first_full: { label: "First full", text: "Yes where no earlier restore point had the disk, so that the run read and compared all of it." },
  level: { label: "Level", text: "Compression level of the agent, 1 to 19; 0 if it did not say. A low one makes every factor lower." },
  host: { label: "Host", text: "The agent's machine, as it calls itself." },
  agent: { label: "Agent", text: "The agent's version." },
  reading_ms: { label: "Reading", text: "Milliseconds that the agent's threads spent reading the disk, added up.", unit: "ms" },
  compressing_ms: { label: "Compressing", text: "Milliseconds that the agent's threads spent compressing and encrypting, added up.", unit: "ms" },
  waiting_ms: { label: "Waiting", text: "Milliseconds for which the agent's threads waited for the server to take data, added up.", unit: "ms" },
  point: { label: "Restore point", text: "What has become of it. exists: it is there. partial: it is there, without disks that could not be read. deleted: it is gone; its costs stay on record. none: the run created none." },
  is_locked: { label: "Locked", text: "Yes where the restore point is locked or held: no one can delete it." },
  deleted: { label: "Deleted", text: "When the restore point was deleted; empty where it was not, or no one knows when." },
  deleted_by: { label: "Deleted by", text: "The token or task that deleted the restore point, and why." },
  used_now: { label: "Used now", text: "Its part of what is stored, as the last reclaim counted it: without what was written or deleted since. What several VMs share is divided among them.", unit: "bytes" },
  trend: {
    label: "Trend",
    text: "Total factor of this disk's latest runs (at most 12), oldest on the left; gaps are runs that stored nothing.",
    unit: "×",
  },
  finding: {
    label: "Finding",
    text: "Set when a run failed, when attempts before it did, when it was the first, or when it is out of line with the runs of its VM before it; then at the disk that brought most.",
  },
  rows: { label: "Disk runs", text: "Rows in this group: one per disk and run.", unit: "rows" },
  failed: { label: "Failed", text: "Rows that ended without a restore point.", unit: "rows" },

  // The repository as a whole.
  protected_bytes: {
    label: "Protected",
    text: "Logical bytes, without holes and zeros, of the latest restore point of each VM: what could be restored right now.",
    unit: "bytes",
  },
  stored_bytes: {
    label: "Stored",
    text: "Bytes in data and recipe containers on disk, for all restore points together.",
    unit: "bytes",
  },
  total_factor: {
    label: "Total factor",
    text: "Logical bytes of all backups ÷ bytes stored for them. Higher is better.",
    unit: "×",
  },
  vms: { label: "VMs", text: "Virtual machines with at least one restore point.", unit: "VMs" },
  backups: { label: "Restore points", text: "Committed backups; each can be restored on its own.", unit: "restore points" },
  disks: { label: "Disks", text: "Virtual disks, in the latest restore point or in the runs of a window.", unit: "disks" },
  runs: { label: "Runs", text: "Executions of jobs.", unit: "runs" },
  new_bytes_30d: { label: "New, 30 days", text: "New bytes after deduplication that this VM added in the last 30 days.", unit: "bytes" },
  vm_stored_bytes: {
    label: "Stored",
    text: "Post-comp and metadata bytes added by all runs of this VM. Chunks that VMs share count for the one that came first.",
    unit: "bytes",
  },
  data_bytes: { label: "Data", text: "Bytes of the disk without holes and zeros.", unit: "bytes" },
  accepted_change: { label: "Less than before", text: "A disk was smaller than in the restore point before this one, or gone, and the backup was told to accept that." },
  partial: { label: "Partial", text: "Some disks of the VM could not be read when this restore point was made, so it does not contain them." },
  latest: { label: "Latest", text: "When the latest restore point was finished." },
  stale: { label: "Stale", text: "No complete restore point in the last 26 hours: one that lacks a disk does not count." },
  verify: {
    label: "Verified",
    text: "Whether the restore point was read back (holdfast verify) and every fingerprint matched.",
  },
  window: { label: "Window", text: "Runs that finished in the last 24 hours, in the last 7 days, or at any time." },
  added_bytes: { label: "Added", text: "What the restore point added to the repository: post-comp plus metadata.", unit: "bytes" },

  // Capacity.
  free_bytes: { label: "Free", text: "Free bytes of the file system the repository lives on.", unit: "bytes" },
  usable_bytes: { label: "Usable", text: "Free bytes minus the reserve: what backups may still use.", unit: "bytes" },
  reserve_bytes: { label: "Reserve", text: "Kept free so that the catalog and deletions always have room (setting: reserve).", unit: "bytes" },
  total_bytes: { label: "Capacity", text: "Size of the file system the repository lives on.", unit: "bytes" },
  repository_bytes: { label: "Repository", text: "Bytes of containers and parity in the data folder.", unit: "bytes" },
  bucket_bytes: { label: "In the bucket", text: "Containers in the bucket, whether or not they are in the data folder too.", unit: "bytes" },
  other_bytes: { label: "Other files", text: "Everything else on the repository's file system.", unit: "bytes" },
  growth: {
    label: "Growth",
    text: "Least-squares slope over the stored bytes of the last 90 days at most; the range is its 90 % confidence interval.",
    unit: "bytes per day",
  },
  forecast: {
    label: "Full on",
    text: "When the usable space runs out if the growth continues; the range reflects the uncertainty of the growth. Needs 3 days of history.",
  },

  // Live activity.
  progress: { label: "Progress", text: "Bytes of the disks processed so far, at least; zeros and unchanged extents count.", unit: "bytes" },
  bytes_per_second: { label: "Speed", text: "Bytes of the disks processed per second, including unchanged ones.", unit: "bytes per second" },
  eta: { label: "Time left", text: "At the current speed.", unit: "seconds" },
  live_new: { label: "New so far", text: "Bytes so far that were not yet in the repository.", unit: "bytes" },
  live_stored: { label: "Stored so far", text: "Bytes of containers written so far.", unit: "bytes" },
  live_wire: { label: "Sent so far", text: "Bytes the agent has sent so far.", unit: "bytes" },

  // Storage internals.
  container_class: { label: "Kind", text: "data: chunks of disks. recipe: the recipes that rebuild disks from chunks." },
  container_state: { label: "State", text: "live: in use. damaged: unusable as a whole. condemned: being deleted." },
  containers: { label: "Containers", text: "Immutable files of up to 32 MiB that hold compressed regions and a directory of their chunks.", unit: "containers" },
  container_stored: { label: "Stored", text: "Bytes of the container files.", unit: "bytes" },
  container_plain: { label: "Before compression", text: "Bytes of their chunks before local compression.", unit: "bytes" },
  container_chunks: { label: "Chunks", text: "Their distinct chunks; each is stored once per namespace.", unit: "chunks" },
  catalog_bytes: { label: "Catalog", text: "Size of the database of everything that is not chunk data.", unit: "bytes" },
  index_entries: { label: "Entries", text: "Chunks in the sorted runs of the index, an entry of about 20 bytes for each.", unit: "entries" },
  index_runs: { label: "Sorted runs", text: "Immutable files of the index; a lookup consults the filter of each. They are merged in the background.", unit: "runs" },
  index_depth: { label: "Depth", text: "The most sorted runs that cover one fingerprint: how many filters a lookup consults at worst.", unit: "runs" },
  index_filter_bytes: { label: "Filters in RAM", text: "Binary fuse filters, which tell without reading the disk that a chunk is new.", unit: "bytes" },
  index_fence_bytes: { label: "Fences in RAM", text: "Page boundaries that lead a lookup straight to one 4 KiB page.", unit: "bytes" },
  index_memtable_bytes: { label: "Write buffer", text: "New entries in RAM, not yet in a sorted run. A crash loses none of them: they are also in the containers' directories.", unit: "bytes" },
  index_memtable_entries: { label: "Buffered entries", text: "Entries in the write buffer.", unit: "entries" },
  index_disk_bytes: { label: "Index on disk", text: "Size of the sorted runs.", unit: "bytes" },
  index_ram_per_chunk: { label: "RAM per chunk", text: "Filters and fences ÷ entries. The design's target is 1.3 bytes or less.", unit: "bytes" },
  index_covered: { label: "Covered containers", text: "Containers whose chunks are all in sorted runs.", unit: "containers" },
  index_uncovered: { label: "Uncovered containers", text: "Containers that a start after a crash would replay from their directories.", unit: "containers" },
  region_factor: { label: "Compression of regions", text: "Plain ÷ stored bytes of each region (up to 256 KiB of new chunks in one zstd frame).", unit: "×" },
  chunk_bytes: { label: "Chunk sizes", text: "Sizes of the chunks that FastCDC cuts: 8 to 64 KiB, about 16 KiB on average.", unit: "bytes" },
  sampled_containers: { label: "Sampled", text: "Evenly spaced data containers whose directories were read for the histograms (64 at most).", unit: "containers" },
  regions: { label: "Regions", text: "Up to 256 KiB of new chunks compressed together; unit of compression and checksum.", unit: "regions" },
  raw_regions: { label: "Raw regions", text: "Regions stored uncompressed because compression saved less than 3 %.", unit: "regions" },

  // The bucket.
  point_tier: {
    label: "Lies",
    text: "Where its data lies, as of the last reclaim. here: on this machine. bucket: in the bucket alone, where it can be read. archive: in the bucket's archive, where it has to be thawed before it can be restored.",
  },
  tier_lag: {
    label: "Behind",
    text: "How long ago everything written until then was in the bucket: what a loss of this machine would cost.",
    unit: "seconds",
  },
  tier_waiting_blobs: { label: "Waiting", text: "Blobs that are not copied yet, as far as it is known.", unit: "blobs" },
  tier_waiting_bytes: { label: "Waiting", text: "Bytes of the blobs that are not copied yet.", unit: "bytes" },
  tier_removals: { label: "To be removed there", text: "Blobs that were removed here and still lie in the bucket.", unit: "blobs" },
  tier_copied: { label: "Copied", text: "Bytes copied since the server started.", unit: "bytes" },
  tier_kind: {
    label: "Kind",
    text: "containers: chunks of disks, and recipes. points: restore points. snapshots: copies of the catalog. keys: tables of data keys, encrypted. repository: whose all of it is.",
  },
  tier_local: { label: "Here alone", text: "In the data folder and not in the bucket: not copied yet.", unit: "bytes" },
  tier_both: { label: "In both", text: "In the data folder, and copied to the bucket.", unit: "bytes" },
  tier_bucket: {
    label: "In the bucket alone",
    text: "Moved there, or of a data folder that was recovered from the bucket: reading it takes requests.",
    unit: "bytes",
  },
  tier_class: { label: "Storage class", text: "What an object store keeps objects in: the cheaper it is to keep them, the longer and dearer it is to read them." },
  tier_class_bytes: { label: "Bytes", text: "What lies there now, what is to be removed included, and the directories beside what is archived.", unit: "bytes" },
  tier_class_blobs: { label: "Objects", text: "Objects of these bytes.", unit: "objects" },
  tier_class_thawed: { label: "Thawed", text: "Objects of the archive of which there is a copy that can be read, or that were asked for.", unit: "objects" },
  tier_class_cost: { label: "This month so far", text: "Keeping what lay there this month, for as long as it did.", unit: "US dollars" },
  tier_class_keeping: { label: "A month", text: "Keeping what lies there now, for a whole month.", unit: "US dollars" },
  tier_asked_objects: { label: "Objects", text: "Objects that were asked for this month.", unit: "objects" },
  tier_asked_bytes: { label: "Bytes", text: "Bytes of these objects.", unit: "bytes" },
  tier_asked_cost: { label: "Cost", text: "Of the requests, of what was retrieved, and of copies that can be read for as long as they were asked for.", unit: "US dollars" },
  tier_archive: { label: "In the archive", text: "Of what lies in the bucket, what has to be thawed before it can be read.", unit: "bytes" },
  tier_put: { label: "PUT", text: "Requests that write an object, or a part of one.", unit: "requests" },
  tier_get: { label: "GET", text: "Requests that read an object, or a part of one.", unit: "requests" },
  tier_head: { label: "HEAD", text: "Requests that ask what lies under a name.", unit: "requests" },
  tier_list: { label: "LIST", text: "Requests that list up to 1,000 objects.", unit: "requests" },
  tier_delete: { label: "DELETE", text: "Requests that delete up to 1,000 objects; Amazon asks nothing for them.", unit: "requests" },
  tier_restore: { label: "Thaw", text: "Requests for a copy of what lies in the archive that can be read.", unit: "requests" },
  tier_failed: { label: "Failed", text: "Requests that were refused or not answered. They are counted in their column, too.", unit: "requests" },
  tier_sent: { label: "Sent", text: "Bytes of blobs sent to the bucket.", unit: "bytes" },
  tier_received: { label: "Received", text: "Bytes of blobs read from the bucket.", unit: "bytes" },
  tier_cost_storage: {
    label: "Storage",
    text: "What lay there, for as long as it did, by the price of its storage class; with the sizes that the class counts for small objects.",
    unit: "US dollars",
  },
  tier_cost_requests: { label: "Requests", text: "Counted requests by their prices, moving objects to another storage class included.", unit: "US dollars" },
  tier_cost_reading: { label: "Reading", text: "Bytes read, where the storage class asks for it.", unit: "US dollars" },
  tier_cost_thawing: { label: "Thawing", text: "Bringing back what lies in the archive, and copies of it that can be read for as long as they were asked for.", unit: "US dollars" },
  tier_cost: {
    label: "Sum",
    text: "Without taxes, contracts, what leaves Amazon's network, and what is removed earlier than the storage class wants it to be.",
    unit: "US dollars",
  },

  thaw_cost: { label: "Cost", text: "By the price list that is named below.", unit: "US dollars" },

  // Access.
  role: { label: "Role", text: "backup: back up, and read back within its namespaces. restore: list, report, restore, verify. operator: everything except tokens and deciding what is kept. admin: everything." },
  scope: { label: "Namespaces", text: "Namespaces that the token is limited to; all when none is listed." },
  token_owner: {
    label: "Owner",
    text: "VMs that the token backs up first belong to this owner. It backs up no VM of another owner.",
  },
  vm_patterns: { label: "VMs", text: "Names of VMs that the token is limited to, with * and ? as wildcards; all when none is listed." },
  vm_owner: { label: "Owner", text: "Only tokens of this owner back the VM up. An operator can change it." },
  created: { label: "Created", text: "When the token was created." },
  expires: { label: "Expires", text: "When the token expires." },
  last_used: { label: "Last used", text: "When the token was last used." },

  // What is kept.
  locked: { label: "Locked", text: "A retention lock: until then no one can delete the restore point, administrators included. A lock can be lengthened, never shortened." },
  held: { label: "Held", text: "A legal hold: the restore point cannot be deleted until an administrator releases the hold with a reason." },
  damaged: { label: "Damaged", text: "Some of its data cannot be restored. The next backup that has this data stores it again, which heals the restore point." },
  damaged_bytes: { label: "Lost", text: "Bytes of the disk that cannot be restored now.", unit: "bytes" },
  last_proven: {
    label: "Last proven",
    text: "When the server last read all of it by itself (scrub) and found every fingerprint right. Of what is end-to-end encrypted: when an agent with the key did, for content is proved only by agents.",
  },
  agent_verified: {
    label: "Proved by agents",
    text: "When an agent with the key last read a restore point back and found it sound. The server proves that it has what it was sent; content is proved only by agents.",
  },
  freed_bytes: { label: "Frees", text: "What no other restore point needs, to the byte. Reclaim frees it once these are deleted; what lies in containers that are mostly in use waits until more of them is dead.", unit: "bytes" },
  policy: { label: "Policy", text: "Rules for what is kept of some restore points. About each restore point the most specific policy decides: a VM's before a job's before one for everything." },
  policy_scope: { label: "For", text: "The VM, the job, or everything in the namespace whose restore points it decides about." },
  keep_rules: { label: "Keeps", text: "A restore point stays when at least one rule keeps it. A VM always keeps its newest restore point, its newest complete one, and those that are locked or held." },
  calendar: { label: "Schedule", text: "When it runs: minute, hour, day of the month, month, day of the week, as cron has them, or @daily and the like." },
  time_zone: { label: "Time zone", text: "The zone of the schedule, and whose days, weeks and months count." },
  next_run: { label: "Next", text: "When the schedule comes next, in your time zone." },
  lock_days: { label: "Locks", text: "Each new restore point is locked for so many days from the moment it exists.", unit: "days" },
  archive_after_days: {
    label: "Archive",
    text: "After so many days data that only its restore points need may go to the archive of the bucket, where there is one; else as the server is set.",
    unit: "days",
  },
  kept_points: { label: "Kept", text: "Restore points that exist on this day.", unit: "restore points" },
  kept_by: { label: "Kept by", text: "The rules that keep the restore point." },

  // Attribution.
  attributed_bytes: {
    label: "Attributed",
    text: "Its part of the stored data. What several VMs share is divided among them by lot, about evenly; within a VM the oldest restore point that has it counts it. All parts add up to the live bytes of the data containers, to the byte.",
    unit: "bytes",
  },
  exclusive_bytes: { label: "Only here", text: "Stored bytes that nothing else had when reclaim last counted them: what deleting it frees. Blank when a restore point of the VM came since; asking what deleting it frees counts anew.", unit: "bytes" },
  shared_bytes: { label: "Shared part", text: "Attributed bytes of chunks that others have too: deleting it frees none of them.", unit: "bytes" },
  live_bytes: { label: "In use", text: "Stored bytes of data containers that some restore point needs.", unit: "bytes" },

  // Tasks.
  task: { label: "Task", text: "Long work that a person or a schedule starts: reclaim, scrub, verification, a run of a policy, an audit of the bucket." },
  task_status: { label: "Status", text: "queued: waits for another of its kind. running: at work. paused: until it is resumed. interrupted: begins again by itself. done, failed, cancelled: over." },
  reclaim: { label: "Reclaim", text: "Frees what no restore point needs any more, beside backups and restores." },
  scrub: { label: "Scrub", text: "Reads everything that is stored and checks it, so that damage is known before a restore needs the data." },
  verification: { label: "Verification", text: "Reads the newest restore point of every VM back at the server, as a restore would." },
  policy_run: { label: "Policy run", text: "Deletes the restore points that a retention policy does not keep." },
  bucket_audit: { label: "Audit of the bucket", text: "Finds objects in the bucket that are gone, changed or archived, and copies again what lies here." },
  thaw: { label: "Thaw", text: "Brings back from the archive of the bucket what a restore needs, so that it can be read for some days. Started on a VM's page, or by 'holdfast restore --thaw'." },
  task_progress: { label: "Progress", text: "How much of the task is done." },
  cleanable_bytes: { label: "Cleanable", text: "Bytes of containers that nothing needs any more, as the round found them.", unit: "bytes" },
  reclaimed_bytes: { label: "Freed", text: "Bytes that the task gave back to the file system.", unit: "bytes" },
  scrub_pass: { label: "Pass", text: "How often the scrub has begun to read everything.", unit: "passes" },
  unproven_containers: { label: "Containers not yet proven", text: "Containers that were not read again since they were written.", unit: "containers" },
  unproven_points: { label: "Restore points not yet proven", text: "Restore points of which not everything was read again since they were made.", unit: "restore points" },
  oldest_proof: { label: "Longest unread", text: "When the container was read that was read longest ago. What was never read counts from when it was written." },

  // Explanations.
  usual_new: { label: "Usually new", text: "Median of the new bytes of this disk's earlier runs.", unit: "bytes" },
  usual_factor: { label: "Usual total factor", text: "Median of the total factors of this disk's earlier runs.", unit: "×" },
  extents_changed: { label: "Changed extents", text: "4 MiB extents that differ from the previous backup.", unit: "extents" },
  extents_first: { label: "Changed for the first time", text: "Changed extents that had stayed the same in all compared backups.", unit: "extents" },
  extents_written: { label: "Newly written", text: "Changed extents that were empty before.", unit: "extents" },
});

export type Term = keyof typeof DEFINITIONS;

/** The definition of a term. */
export const definition = (term: Term): Definition => DEFINITIONS[term];

/** Every term, for the hidden glossary that screen readers are pointed to. */
export const TERMS = Object.keys(DEFINITIONS) as Term[];
