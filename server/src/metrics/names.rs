//! Every metric there is: name, kind, unit, labels and help. Nothing else in this program names a metric.
//!
//! The table in docs/operations/watching.md is generated from this one, and a test compares the two; another compares it with
//! the dashboard and the alert rules in `deploy/`. A name is an interface: other people's dashboards use it. Add, but
//! do not rename.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit as TextUnit;

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows while the process lives; its name ends in `_total`.
    Counter,
    Gauge,
    Histogram,
    /// Always 1; what it says is in its labels. Its name ends in `_info`.
    Info,
}

impl Kind {
    /// The word in the documentation.
    #[cfg(test)]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// The exposition format's name for it.
    pub(super) const fn text(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
            Self::Info => MetricType::Info,
        }
    }

    /// Suffix that the encoder appends to the family's name.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }
}

/// Unit of a metric. Part of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things.
    Count,
    Bytes,
    Seconds,
}

impl Unit {
    /// The exposition format's name for it.
    pub(super) const fn text(self) -> Option<TextUnit> {
        match self {
            Self::Count => None,
            Self::Bytes => Some(TextUnit::Bytes),
            Self::Seconds => Some(TextUnit::Seconds),
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "_bytes",
            Self::Seconds => "_seconds",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// Name of its samples, unit and suffix included.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    /// Names of its labels, in the order of their values.
    pub(crate) labels: &'static [&'static str],
    /// One sentence without its full stop.
    pub(crate) help: &'static str,
}

impl Definition {
    /// The name without what the encoder appends.
    pub(super) fn stem(&self) -> &'static str {
        let stem = self.name.strip_suffix(self.kind.suffix()).unwrap_or(self.name);
        stem.strip_suffix(self.unit.suffix()).unwrap_or(stem)
    }
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) const $constant: Definition = Definition {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All of them, in the order of the documentation and of the exposition.
        pub(crate) const ALL: &[&Definition] = &[$(&$constant),*];
    };
}

metrics! {
    BUILD_INFO = Info Count "holdfast_build_info" ["version"]
        "Version of the server";
    PROCESS_CPU = Counter Seconds "process_cpu_seconds_total" []
        "Processor time the server used, user and system";
    PROCESS_MEMORY = Gauge Bytes "process_resident_memory_bytes" []
        "Resident memory of the server";
    MEMORY_LIMIT = Gauge Bytes "holdfast_memory_limit_bytes" []
        "Memory the server may use: the smallest of the setting, its control groups and the machine";
    PROCESS_VIRTUAL = Gauge Bytes "process_virtual_memory_bytes" []
        "Address space of the server";
    PROCESS_THREADS = Gauge Count "process_threads" []
        "Threads of the server";
    PROCESS_FDS = Gauge Count "process_open_fds" []
        "Open file descriptors";
    PROCESS_FDS_MAX = Gauge Count "process_max_fds" []
        "File descriptors the server may open";
    PROCESS_START = Gauge Seconds "process_start_time_seconds" []
        "When the server was started, as Unix time";

    REPOSITORY_BYTES = Gauge Bytes "holdfast_repository_bytes" ["part"]
        "Bytes the repository takes up, by part: data and recipe containers, catalog, index, parity";
    REPOSITORY_PLAIN = Gauge Bytes "holdfast_repository_plain_bytes" ["part"]
        "Bytes in containers before compression, by part: data and recipe";
    CONTAINERS = Gauge Count "holdfast_containers" ["part", "state"]
        "Containers, by part and state";
    READ_ONLY = Gauge Count "holdfast_read_only" []
        "1 if the repository accepts no writes after an I/O error, until the next start";
    NOT_READY = Gauge Count "holdfast_not_ready" ["reason"]
        "1 if backups are not accepted for this reason: stopped, volume_absent, volume_read_only, full, index_damaged, catalog, points_unread, locked, no_bucket or certificate";
    DAMAGED_CONTAINERS = Gauge Count "holdfast_damaged_containers" []
        "Containers known to be damaged as a whole";
    DAMAGED_REGIONS = Gauge Count "holdfast_damaged_regions" []
        "Regions known to be damaged in containers that are otherwise sound";
    OPEN_DAMAGE = Gauge Count "holdfast_open_damage" []
        "Containers with damage of which not everything was found elsewhere: it may cost restore points something";
    DAMAGED_RESTORE_POINTS = Gauge Count "holdfast_damaged_restore_points" []
        "Restore points of which something cannot be restored";
    LOST_BYTES = Gauge Bytes "holdfast_lost_bytes" []
        "Bytes of restore points that cannot be restored";
    UNPROVEN = Gauge Count "holdfast_unproven" ["part"]
        "Containers and restore_points that were never read again since they were written";
    OLDEST_PROOF_AGE = Gauge Seconds "holdfast_oldest_proof_age_seconds" ["part"]
        "Time since the scrub last proved sound what it read longest ago, or, if it never did, since that was written, by part: containers or restore_points";
    SCRUB_PASS_AGE = Gauge Seconds "holdfast_scrub_pass_age_seconds" []
        "Time since the scrub has gone over everything that is on this machine once, or, if it never did, since it began to; absent before that";
    AGENTS_PROOF_AGE = Gauge Seconds "holdfast_agents_proof_age_seconds" []
        "Time since an agent last verified the VM of end-to-end encrypted namespaces that waits longest, or, if none ever did, since its first restore point; absent without such VMs";
    UNPROVEN_BY_AGENTS = Gauge Count "holdfast_unproven_by_agents" []
        "VMs of end-to-end encrypted namespaces of which no agent has ever verified a restore point; absent without such VMs";
    SCRUBBED = Counter Bytes "holdfast_scrubbed_bytes_total" []
        "Bytes of containers that the scrub read since the server started";
    SCRUB_FOUND = Counter Count "holdfast_scrub_found_total" ["what"]
        "What the scrub found since the server started: damaged_containers, unsound_restore_points, false_digests, or unclear, what it could not judge";
    PARITY_CONTAINERS = Gauge Count "holdfast_parity_containers" []
        "Containers that parity protects";
    PARITY_DAMAGED = Gauge Count "holdfast_parity_damaged_groups" []
        "Groups whose parity was found damaged or missing and was not made anew yet: what is in them cannot be repaired, or not all of it";
    PARITY_REPAIRS = Counter Count "holdfast_parity_repairs_total" ["what"]
        "Damaged containers that parity made again since the server started: read (for who needed them) or rewritten (into sound ones)";
    VOLUME_SIZE = Gauge Bytes "holdfast_volume_size_bytes" []
        "Size of the file system that holds the repository";
    VOLUME_FREE = Gauge Bytes "holdfast_volume_free_bytes" []
        "Free bytes of that file system";
    VOLUME_RESERVE = Gauge Bytes "holdfast_volume_reserve_bytes" []
        "Bytes of that file system that backups leave free";

    BUCKET_WAITING = Gauge Count "holdfast_bucket_waiting_blobs" []
        "Blobs that wait to be copied to the bucket, as far as it is known";
    BUCKET_WAITING_BYTES = Gauge Bytes "holdfast_bucket_waiting_bytes" []
        "Bytes of these";
    BUCKET_LAG = Gauge Seconds "holdfast_bucket_lag_seconds" []
        "How long ago everything sealed until then had been copied to the bucket: what a loss of this machine would cost; absent until all was once";
    BUCKET_FAILING = Gauge Count "holdfast_bucket_failing" []
        "1 if the last try to copy failed";
    BUCKET_REMOVALS = Gauge Count "holdfast_bucket_removals" []
        "Blobs that were removed here and still lie in the bucket";
    BUCKET_FLAWED = Gauge Count "holdfast_bucket_flawed_objects" []
        "Objects of the bucket that the last audits, or readers, found gone, changed or archived and that were not put right since";
    BUCKET_RETAINED = Gauge Count "holdfast_bucket_retained_objects" []
        "Objects of the bucket that must stay (Object Lock), as the bucket said";
    BUCKET_RETENTION_BEHIND = Gauge Count "holdfast_bucket_retention_behind_objects" []
        "Objects that locked restore points need and that do not stay in the bucket as long as these are locked yet";
    BUCKET_RETENTION_FAILING = Gauge Count "holdfast_bucket_retention_failing" []
        "1 while what locked restore points need cannot be made to stay in the bucket, else 0";
    BUCKET_COPIED = Counter Count "holdfast_bucket_copied_blobs_total" []
        "Blobs copied to the bucket since the server started";
    BUCKET_COPIED_BYTES = Counter Bytes "holdfast_bucket_copied_bytes_total" []
        "Bytes of these";
    BUCKET_REQUESTS = Counter Count "holdfast_bucket_requests_total" ["kind"]
        "Requests to the bucket since the server started, failed ones included, by kind: put, get, head, list, delete or restore";
    BUCKET_REQUEST_FAILURES = Counter Count "holdfast_bucket_request_failures_total" []
        "Those that were refused or not answered";
    BUCKET_SENT = Counter Bytes "holdfast_bucket_sent_bytes_total" []
        "Bytes of blobs sent to the bucket";
    BUCKET_RECEIVED = Counter Bytes "holdfast_bucket_received_bytes_total" []
        "Bytes of blobs read from the bucket";

    BUCKET_STORED = Gauge Count "holdfast_bucket_stored_blobs" ["kind"]
        "Blobs in the bucket, by kind: containers, points, snapshots, keys or repository";
    BUCKET_STORED_BYTES = Gauge Bytes "holdfast_bucket_stored_bytes" ["kind"]
        "Bytes of these";
    BUCKET_CLASS = Gauge Count "holdfast_bucket_class_blobs" ["class"]
        "Blobs in the bucket, by storage class, and the directories that lie beside what is archived";
    BUCKET_CLASS_BYTES = Gauge Bytes "holdfast_bucket_class_bytes" ["class"]
        "Bytes of these";
    BUCKET_THAWED = Counter Count "holdfast_bucket_thawed_objects_total" []
        "Objects of the archive that were asked to be thawed since the server started";
    BUCKET_THAWED_BYTES = Counter Bytes "holdfast_bucket_thawed_bytes_total" []
        "Bytes of these";
    BUCKET_COST = Gauge Count "holdfast_bucket_cost_dollars" ["what"]
        "US dollars by the built-in price list of Amazon S3, by what: month (this month so far), thawing (the part of it that thaws cost), forecast (by its end) or keeping (what lies there, for a whole month); absent where a price is not known";

    INDEX_ENTRIES = Gauge Count "holdfast_index_entries" []
        "Entries of the chunk index, including duplicates that are not merged yet";
    INDEX_RUNS = Gauge Count "holdfast_index_runs" []
        "Sorted runs of the chunk index";
    INDEX_DEPTH = Gauge Count "holdfast_index_depth" []
        "The most sorted runs one look-up may have to read";
    INDEX_MEMORY = Gauge Bytes "holdfast_index_memory_bytes" ["part"]
        "Memory of the chunk index, by part: filters, fences and the write buffer (its full size)";
    INDEX_BUFFERED = Gauge Count "holdfast_index_buffered_entries" []
        "Entries of the chunk index that are only in its write buffer";
    INDEX_UNCOVERED = Gauge Count "holdfast_index_uncovered_containers" []
        "Containers whose directories would be replayed into the index after a crash now";

    VMS = Gauge Count "holdfast_vms" ["namespace"]
        "VMs with a restore point";
    VMS_STALE = Gauge Count "holdfast_stale_vms" ["namespace"]
        "VMs without a complete restore point in the last 26 hours";
    RESTORE_POINTS = Gauge Count "holdfast_restore_points" ["namespace"]
        "Restore points";
    RESTORE_POINT_AGE = Gauge Seconds "holdfast_newest_restore_point_age_seconds" ["namespace"]
        "Time since the newest restore point was finished";
    PROTECTED = Gauge Bytes "holdfast_protected_bytes" ["namespace"]
        "Data of the newest restore point of each VM, holes and zeros not counted";
    STORED = Gauge Bytes "holdfast_stored_bytes" ["namespace"]
        "Bytes of the data and recipe containers";
    QUOTA_USED = Gauge Count "holdfast_quota_used" ["namespace", "quota"]
        "What counts against each quota of a namespace: stored_bytes, protected_bytes, restore_points, sessions_per_day";
    QUOTA_LIMIT = Gauge Count "holdfast_quota_limit" ["namespace", "quota"]
        "The limit of each quota that is set, in the same units; of several namespaces under one label, their sum";
    RECORDED_PRE_COMP = Gauge Bytes "holdfast_recorded_pre_comp_bytes" ["namespace", "backup_job"]
        "Bytes backed up before deduplication, of all runs on record";
    RECORDED_NEW = Gauge Bytes "holdfast_recorded_new_bytes" ["namespace", "backup_job"]
        "Bytes left after deduplication, of all runs on record";
    RECORDED_POST_LC = Gauge Bytes "holdfast_recorded_post_lc_bytes" ["namespace", "backup_job"]
        "Bytes written to data containers, of all runs on record";
    RECORDED_META = Gauge Bytes "holdfast_recorded_meta_bytes" ["namespace", "backup_job"]
        "Bytes written to recipe containers, of all runs on record";
    RECORDED_WIRE = Gauge Bytes "holdfast_recorded_wire_bytes" ["namespace", "backup_job"]
        "Bytes agents sent, of all runs on record";
    RECORDED_DONE_PRE_COMP = Gauge Bytes "holdfast_recorded_done_pre_comp_bytes" ["namespace", "backup_job"]
        "Bytes backed up before deduplication, of disks that made a restore point";
    RECORDED_DONE_NEW = Gauge Bytes "holdfast_recorded_done_new_bytes" ["namespace", "backup_job"]
        "Bytes left after deduplication, of these disks and of failed attempts on them before";
    RECORDED_DONE_POST_LC = Gauge Bytes "holdfast_recorded_done_post_lc_bytes" ["namespace", "backup_job"]
        "Bytes written to data containers, by backups of these disks and by failed attempts on them before";
    RECORDED_DISKS = Gauge Count "holdfast_recorded_disks" ["namespace", "backup_job", "outcome"]
        "Backups of single disks on record, by outcome: done or failed (aborted and expired ones included)";
    RECORDED_RUNS = Gauge Count "holdfast_recorded_runs" ["namespace", "backup_job"]
        "Runs on record";
    JOB_FAILING_VMS = Gauge Count "holdfast_job_failing_vms" ["namespace", "backup_job"]
        "VMs that failed in the job, in whole or in part, since they were last backed up as a whole; removed ones left out";
    JOB_REGRESSION = Gauge Count "holdfast_job_dedupe_regression" ["namespace", "backup_job"]
        "How many times as large the total factor of the job's worst VM usually is, of runs that ended in the last 24 hours and stored more than usual; 1 if none did";
    RUNS_DAY = Gauge Count "holdfast_runs_last_day" ["outcome"]
        "Runs that ended in the last 24 hours, by outcome: done, partly (some disks failed) or failed";

    TASKS = Gauge Count "holdfast_tasks" ["kind", "status"]
        "Tasks that have not ended, by kind (reclaim, scrub, verify, policy, audit) and status: queued, running, paused or interrupted";
    TASK_AGE = Gauge Seconds "holdfast_task_last_done_age_seconds" ["kind"]
        "Time since the latest task of each kind was done; absent until there is one";
    SCHEDULES_SKIPPED = Counter Count "holdfast_schedules_skipped_total" ["kind"]
        "Times since the server started that a schedule started nothing because a task that does the same is paused, by kind";
    RECLAIM_FREED = Gauge Bytes "holdfast_reclaim_last_freed_bytes" []
        "Bytes that the latest reclaim freed";
    RECLAIM_CLEANABLE = Gauge Bytes "holdfast_reclaim_cleanable_bytes" []
        "Bytes that the latest reclaim found nothing refers to";

    AGENTS = Gauge Count "holdfast_agents" ["state"]
        "Agents that back up by the clock, by state: known, late (the next run has passed by more than two hours, without a report for as long) or troubled (it reports a problem)";
    AGENT_OVERDUE = Gauge Seconds "holdfast_agent_next_run_overdue_seconds" []
        "How long ago the next run of the agent that is latest should have begun, or the agent reported, if that was later; 0 if all are in time, absent without agents";

    KIT_MISSING = Gauge Count "holdfast_encryption_kit_missing" []
        "1 while the repository is encrypted and nothing but a key file opens it: no recovery kit, passphrase or command; absent where it is not encrypted";
    CONVERSION_DONE = Gauge Count "holdfast_encryption_complete" []
        "1 once everything on the volume is encrypted with the keys of today; 0 while it is converted; absent where the repository is not encrypted";
    CONVERSION = Gauge Count "holdfast_encryption_conversion_blobs" ["what"]
        "Blobs of the pass that encrypts what is not, by what: total (when the pass began), looked_at, left (could not be read) or elsewhere (old forms still in the bucket)";
    CONVERTED = Counter Bytes "holdfast_encryption_converted_bytes_total" []
        "Bytes that were there already and have been encrypted since the server started";

    SESSIONS = Gauge Count "holdfast_sessions" []
        "Backups in progress";
    STREAMS = Gauge Count "holdfast_streams" ["kind"]
        "Open streams, by kind: ingest, digests or restore";
    STREAMS_WAITING = Gauge Count "holdfast_streams_waiting" ["kind"]
        "Streams that wait for their turn, by kind";
    STREAM_WAITS = Counter Count "holdfast_stream_waits_total" ["kind"]
        "Streams that waited and got their turn since the server started, by kind";
    STREAM_WAIT_TIME = Counter Seconds "holdfast_stream_wait_seconds_total" ["kind"]
        "How long these streams waited, by kind";
    BACKUPS = Counter Count "holdfast_backups_total" ["namespace", "backup_job", "outcome"]
        "Backups that ended since the server started, by outcome: done, aborted or expired";
    BACKUP_PRE_COMP = Counter Bytes "holdfast_backup_pre_comp_bytes_total" ["namespace", "backup_job"]
        "Bytes backed up before deduplication, of backups completed since the server started";
    BACKUP_NEW = Counter Bytes "holdfast_backup_new_bytes_total" ["namespace", "backup_job"]
        "Bytes left after deduplication, of backups completed since the server started and of the attempts before them";
    BACKUP_POST_LC = Counter Bytes "holdfast_backup_post_lc_bytes_total" ["namespace", "backup_job"]
        "Bytes written to data containers, by backups completed since the server started and by the attempts before them";
    BACKUP_META = Counter Bytes "holdfast_backup_meta_bytes_total" ["namespace", "backup_job"]
        "Bytes written to recipe containers, by backups completed since the server started";
    BACKUP_WIRE = Counter Bytes "holdfast_backup_wire_bytes_total" ["namespace", "backup_job"]
        "Bytes agents sent, for backups completed since the server started";
    BACKUP_DURATION = Histogram Seconds "holdfast_backup_duration_seconds" []
        "How long completed backups took, from start to commit";
    RESTORES = Counter Count "holdfast_restores_total" ["outcome"]
        "Disks or parts of disks read back, by outcome: done, failed or cancelled (by the client)";
    RESTORED = Counter Bytes "holdfast_restored_bytes_total" []
        "Data read back, decompressed; whole regions, even if only a part was needed";
    RESTORE_SENT = Counter Bytes "holdfast_restore_sent_bytes_total" []
        "Bytes sent to clients that read disks back, compressed as they are stored";
    RESTORE_REGIONS = Counter Count "holdfast_restore_regions_total" ["from"]
        "Regions of containers that restores wanted, by where they came from: volume (read) or memory (another restore had just read them)";
    RESTORE_REGION_BYTES = Counter Bytes "holdfast_restore_region_bytes_total" ["from"]
        "Bytes of these regions as they are stored, by where they came from: volume or memory";
    RESTORE_SHARED = Gauge Bytes "holdfast_restore_shared_bytes" []
        "Memory held by regions that were read for restores and are kept for others";
    VERIFICATIONS = Counter Count "holdfast_verifications_total" ["outcome"]
        "Verifications clients reported, by outcome: sound or damaged";

    EXTENT_DIGESTS = Counter Count "holdfast_extent_digests_total" ["outcome"]
        "Extent digests agents sent, by outcome: proved, unproved (the server did not have all of the extent), refused (false; the backup ended) or false (found by reading later)";

    GRPC_REQUESTS = Counter Count "holdfast_grpc_requests_total" ["method", "code"]
        "gRPC calls that ended, by method and status";
    GRPC_DURATION = Histogram Seconds "holdfast_grpc_request_duration_seconds" ["method"]
        "How long gRPC calls took, streams to their end";
    HTTP_REQUESTS = Counter Count "holdfast_http_requests_total" ["method", "route", "code"]
        "Requests to the API and over HTTPS, by method, route and status";
    HTTP_DURATION = Histogram Seconds "holdfast_http_request_duration_seconds" ["route"]
        "How long requests to the API and over HTTPS took until the answer began";
    AUTH_FAILURES = Counter Count "holdfast_auth_failures_total" ["protocol", "reason"]
        "Calls refused, by protocol (grpc, http) and reason: unauthenticated (no valid token), backed_off (before its token was looked up) or forbidden (role or namespace)";
    CONNECTIONS = Gauge Count "holdfast_connections" ["listener"]
        "Open connections, by listener: grpc or http";
    NETWORK_RECEIVED = Counter Bytes "holdfast_network_received_bytes_total" ["listener"]
        "Bytes received, without encryption, by listener: grpc or http";
    NETWORK_SENT = Counter Bytes "holdfast_network_sent_bytes_total" ["listener"]
        "Bytes sent, without encryption, by listener: grpc or http";

    REFRESH_AGE = Gauge Seconds "holdfast_metrics_age_seconds" []
        "Age of the figures that are looked up in the catalog and cached";
    REFRESH_DURATION = Gauge Seconds "holdfast_metrics_refresh_duration_seconds" []
        "How long it took to look these figures up the last time";
    REFRESH_FAILURES = Counter Count "holdfast_metrics_refresh_failures_total" []
        "How often these figures could not be looked up; the log says why";
}
