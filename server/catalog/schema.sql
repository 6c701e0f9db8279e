-- The catalog. Identifiers are ULIDs as 16 bytes, times are milliseconds since the Unix epoch, byte counts are bytes.
-- `sqlite/schema.rs` makes it in one transaction; a change of it is a new version there.

-- The repository. One row.
CREATE TABLE repository (
    only_row             INTEGER PRIMARY KEY CHECK (only_row = 1),
    id                   BLOB    NOT NULL CHECK (length(id) = 16),
    created_ms           INTEGER NOT NULL,
    format_version       INTEGER NOT NULL CHECK (format_version >= 1),
    chunker_algorithm    TEXT    NOT NULL,
    chunker_min_bytes    INTEGER NOT NULL CHECK (chunker_min_bytes > 0),
    chunker_avg_bytes    INTEGER NOT NULL CHECK (chunker_avg_bytes >= chunker_min_bytes),
    chunker_max_bytes    INTEGER NOT NULL CHECK (chunker_max_bytes >= chunker_avg_bytes),
    chunker_extent_bytes INTEGER NOT NULL CHECK (chunker_extent_bytes > 0),
    chunker_region_bytes INTEGER NOT NULL CHECK (chunker_region_bytes > 0),
    -- The lowest container number never handed out. 2^40 means that none is left.
    next_container       INTEGER NOT NULL CHECK (next_container BETWEEN 1 AND 1099511627776),
    -- The highest commit number given to a backup.
    last_commit          INTEGER NOT NULL DEFAULT 0 CHECK (last_commit >= 0),
    -- Whether every backup is known to have its point on the volume.
    points_written       INTEGER NOT NULL DEFAULT 0 CHECK (points_written IN (0, 1)),
    -- How often the catalog has begun to delete restore points or containers. Raised in the transaction that begins it, and
    -- then on the volume: of a volume that is further the catalog is an older copy.
    generation           INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0)
) STRICT;

-- Tenants: the boundary of deduplication.
CREATE TABLE namespaces (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT    NOT NULL UNIQUE CHECK (length(name) > 0),
    created_ms INTEGER NOT NULL,
    -- The key with which agents encrypt its content themselves; null: they do not. Set when the namespace is created, and
    -- never changed: what is stored was named and sealed with it.
    key_id     BLOB    CHECK (key_id IS NULL OR length(key_id) = 8)
) STRICT, WITHOUT ROWID;

-- Limits of a namespace. No row, or null: none.
CREATE TABLE namespace_quotas (
    namespace_id     BLOB    NOT NULL PRIMARY KEY REFERENCES namespaces (id),
    stored_bytes     INTEGER CHECK (stored_bytes >= 0),
    protected_bytes  INTEGER CHECK (protected_bytes >= 0),
    restore_points   INTEGER CHECK (restore_points >= 0),
    sessions_per_day INTEGER CHECK (sessions_per_day >= 0)
) STRICT, WITHOUT ROWID;

-- What a namespace takes: sums over other tables (`sqlite/usage.rs`), so that asking costs one row.
CREATE TABLE namespace_usage (
    namespace_id    BLOB    NOT NULL PRIMARY KEY REFERENCES namespaces (id),
    -- Of its containers, whatever their state.
    stored_bytes    INTEGER NOT NULL DEFAULT 0,
    -- Data of the newest restore point of each VM.
    protected_bytes INTEGER NOT NULL DEFAULT 0,
    restore_points  INTEGER NOT NULL DEFAULT 0,
    vms             INTEGER NOT NULL DEFAULT 0,
    jobs            INTEGER NOT NULL DEFAULT 0,
    -- Sessions begun on a day (since the Unix epoch, UTC); of any other day none.
    sessions_day    INTEGER NOT NULL DEFAULT 0,
    sessions        INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What is backed up.
CREATE TABLE vms (
    id                BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id      BLOB    NOT NULL REFERENCES namespaces (id),
    name              TEXT    NOT NULL CHECK (length(name) > 0),
    created_ms        INTEGER NOT NULL,
    -- Null: no backup of it was ever committed, so it is no one's yet.
    owner             TEXT    CHECK (length(owner) > 0),
    -- Set: it has no restore points and is in no overview; its history stays. A backup of that name takes it back.
    removed_ms        INTEGER,
    -- When an agent last read all of any of its restore points and found it sound. Outlives the restore point.
    agent_verified_ms INTEGER,
    -- Name first, so that a name is also found without knowing the namespace.
    UNIQUE (name, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX vms_of_namespace ON vms (namespace_id, name);

-- What backs VMs up.
CREATE TABLE jobs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    created_ms   INTEGER NOT NULL,
    -- How many rows of `runs` it has.
    runs         INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_of_namespace ON jobs (namespace_id);

-- Executions of jobs. A run is widened by every session that joins it.
CREATE TABLE runs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    job_id       BLOB    NOT NULL REFERENCES jobs (id),
    started_ms   INTEGER NOT NULL,
    finished_ms  INTEGER NOT NULL,
    -- Of the token that began it; no other owner may join it.
    owner        TEXT    NOT NULL CHECK (length(owner) > 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_of_namespace ON runs (namespace_id);
CREATE INDEX runs_of_job ON runs (job_id, started_ms);

-- Restore points.
CREATE TABLE backups (
    id                BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    -- The session that made it; what makes a repeated commit recognisable.
    session_id        BLOB    NOT NULL UNIQUE CHECK (length(session_id) = 16),
    namespace_id      BLOB    NOT NULL REFERENCES namespaces (id),
    vm_id             BLOB    NOT NULL REFERENCES vms (id),
    job_id            BLOB    NOT NULL REFERENCES jobs (id),
    run_id            BLOB    NOT NULL REFERENCES runs (id),
    -- Commit number, counted over the repository: "latest" must not depend on a clock that may be set back.
    ordinal           INTEGER NOT NULL CHECK (ordinal >= 1),
    started_ms        INTEGER NOT NULL,
    finished_ms       INTEGER NOT NULL,
    client_host       TEXT    NOT NULL,
    -- The VM's owner when it was committed: extent digests are that owner's claims.
    owner             TEXT    NOT NULL CHECK (length(owner) > 0),
    -- Disks that belong to the VM but could not be read: their names, one a line (a name has no control characters).
    -- Empty: the restore point is complete, as far as the agent said.
    missing_disks     TEXT    NOT NULL DEFAULT '',
    -- Whether a disk was smaller than in the restore point before, or gone, and the agent was told to go on.
    accepted_change   INTEGER NOT NULL DEFAULT 0 CHECK (accepted_change IN (0, 1)),
    -- Null: not locked.
    locked_until_ms   INTEGER,
    -- A legal hold, which has no end; null: there is none.
    hold_reason       TEXT    CHECK (length(hold_reason) > 0),
    hold_who          TEXT,
    hold_since_ms     INTEGER,
    -- The revision of the point on the volume, and the one that says what this row says. The row says more than its point
    -- as long as the second is higher.
    point_revision    INTEGER NOT NULL DEFAULT 1 CHECK (point_revision >= 1),
    point_wanted      INTEGER NOT NULL DEFAULT 1 CHECK (point_wanted >= 1),
    -- When all that it refers to was last read and every extent hashed to its digest; null: not yet.
    proven_ms         INTEGER,
    -- When an agent last read all of it and found it sound; null: not since then.
    agent_verified_ms INTEGER,
    UNIQUE (vm_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX backups_by_start ON backups (started_ms, id);
CREATE INDEX backups_of_namespace ON backups (namespace_id, started_ms, id);
CREATE INDEX backups_of_namespace_by_end ON backups (namespace_id, finished_ms);
CREATE INDEX backups_of_vm ON backups (vm_id, started_ms, id);
CREATE INDEX backups_of_job ON backups (job_id, started_ms, id);
CREATE INDEX backups_of_run ON backups (run_id);
CREATE INDEX backups_locked ON backups (locked_until_ms) WHERE locked_until_ms IS NOT NULL;
CREATE INDEX backups_with_stale_points ON backups (id) WHERE point_wanted > point_revision;

-- Disks of restore points.
CREATE TABLE disks (
    backup_id    BLOB    NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    position     INTEGER NOT NULL CHECK (position >= 0),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    size_bytes   INTEGER NOT NULL CHECK (size_bytes >= 0),
    data_bytes   INTEGER NOT NULL CHECK (data_bytes BETWEEN 0 AND size_bytes),
    extent_count INTEGER NOT NULL CHECK (extent_count >= 0),
    -- Fingerprint of the recipe's root.
    root         BLOB    NOT NULL CHECK (length(root) = 32),
    PRIMARY KEY (backup_id, position),
    UNIQUE (backup_id, name)
) STRICT, WITHOUT ROWID;

-- Restore points that are being deleted: moved here from `backups`, so that nothing that looks for restore points finds
-- them. A row goes once no revision of the point is left on the volume.
CREATE TABLE deletions (
    id             BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id   BLOB    NOT NULL REFERENCES namespaces (id),
    vm             TEXT    NOT NULL CHECK (length(vm) > 0),
    point_revision INTEGER NOT NULL CHECK (point_revision >= 1),
    -- Its point may lie elsewhere than its names say.
    stale          INTEGER NOT NULL CHECK (stale IN (0, 1)),
    begun_ms       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Restore points that were deleted. History, as the compression details that name them.
CREATE TABLE deleted_backups (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    -- Null: not known, because an older copy of the catalog found it gone.
    deleted_ms INTEGER,
    -- Who deleted it, a token or a task, and why.
    deleted_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- The time that locks are compared with. One row; null until it is first advanced.
CREATE TABLE lock_clock (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    now_ms   INTEGER
) STRICT;
INSERT INTO lock_clock (only_row, now_ms) VALUES (1, NULL);

-- Results of reading restore points back, the latest few of each.
CREATE TABLE verifications (
    backup_id BLOB    NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    -- Order of recording: "the newest" must not depend on a clock that may be set back.
    ordinal   INTEGER NOT NULL CHECK (ordinal >= 1),
    at_ms     INTEGER NOT NULL,
    who       TEXT    NOT NULL,
    -- Whether an agent read it, rather than the server.
    by_agent  INTEGER NOT NULL DEFAULT 0 CHECK (by_agent IN (0, 1)),
    ok        INTEGER NOT NULL CHECK (ok IN (0, 1)),
    detail    TEXT    NOT NULL,
    PRIMARY KEY (backup_id, ordinal)
) STRICT, WITHOUT ROWID;

-- Parts of disks of restore points that cannot be restored; no row: nothing is known to be lost.
CREATE TABLE damaged_disks (
    backup_id BLOB    NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    -- The disk's index in the restore point.
    position  INTEGER NOT NULL CHECK (position >= 0),
    found_ms  INTEGER NOT NULL,
    -- Bytes, and ranges of them, that are lost in all.
    bytes     INTEGER NOT NULL CHECK (bytes > 0),
    ranges    INTEGER NOT NULL CHECK (ranges > 0),
    -- The first of these: "START+LENGTH" in bytes, with blanks between.
    listed    TEXT    NOT NULL,
    PRIMARY KEY (backup_id, position)
) STRICT, WITHOUT ROWID;

-- Restore points of which something may be lost that no row of a container tells of: entered from the volume, or a read met
-- something that is nowhere. Until everything they refer to was looked up.
CREATE TABLE in_doubt (
    backup_id BLOB PRIMARY KEY REFERENCES backups (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Where the data of each restore point lies, as of the last time that was looked up: plain bytes without holes and zeros,
-- so their sum is that of its disks but for what is lost. A restore point that came since has no row.
CREATE TABLE backup_places (
    backup_id     BLOB    NOT NULL PRIMARY KEY REFERENCES backups (id) ON DELETE CASCADE,
    at_ms         INTEGER NOT NULL,
    here_bytes    INTEGER NOT NULL CHECK (here_bytes >= 0),
    -- In the bucket alone, where it can be read.
    bucket_bytes  INTEGER NOT NULL CHECK (bucket_bytes >= 0),
    -- In the bucket alone, where it must be thawed before it can be read.
    archive_bytes INTEGER NOT NULL CHECK (archive_bytes >= 0)
) STRICT, WITHOUT ROWID;

-- Compression details: one row a session and disk, of failed sessions too. History: it outlives the backup it tells of, so
-- backup_id is no foreign key.
CREATE TABLE details (
    -- Rises in the order of writing.
    number          INTEGER PRIMARY KEY,
    session_id      BLOB    NOT NULL CHECK (length(session_id) = 16),
    position        INTEGER NOT NULL CHECK (position >= 0),
    namespace_id    BLOB    NOT NULL REFERENCES namespaces (id),
    job_id          BLOB    NOT NULL REFERENCES jobs (id),
    run_id          BLOB    NOT NULL REFERENCES runs (id),
    vm_id           BLOB    NOT NULL REFERENCES vms (id),
    disk            TEXT    NOT NULL CHECK (length(disk) > 0),
    backup_id       BLOB    CHECK (length(backup_id) = 16),
    status          TEXT    NOT NULL CHECK (status IN ('done', 'failed', 'aborted', 'expired')),
    started_ms      INTEGER NOT NULL,
    finished_ms     INTEGER NOT NULL,
    virtual_bytes   INTEGER NOT NULL CHECK (virtual_bytes >= 0),
    bytes           INTEGER NOT NULL CHECK (bytes >= 0),
    read_bytes      INTEGER NOT NULL CHECK (read_bytes >= 0),
    unchanged_bytes INTEGER NOT NULL CHECK (unchanged_bytes >= 0),
    dup_bytes       INTEGER NOT NULL CHECK (dup_bytes >= 0),
    new_bytes       INTEGER NOT NULL CHECK (new_bytes >= 0),
    post_lc         INTEGER NOT NULL CHECK (post_lc >= 0),
    meta_bytes      INTEGER NOT NULL CHECK (meta_bytes >= 0),
    wire_bytes      INTEGER NOT NULL CHECK (wire_bytes >= 0),
    chunks          INTEGER NOT NULL CHECK (chunks >= 0),
    new_chunks      INTEGER NOT NULL CHECK (new_chunks BETWEEN 0 AND chunks),
    error           TEXT    NOT NULL,
    -- Of the attempts on the disk that made no restore point since its last one, where this row made one. Such attempts are
    -- merged in time.
    retried_new_bytes INTEGER NOT NULL DEFAULT 0 CHECK (retried_new_bytes >= 0),
    retried_post_lc   INTEGER NOT NULL DEFAULT 0 CHECK (retried_post_lc >= 0),
    -- How the agent ran: whether the disk had no parent, its level, machine and version, and what its threads did.
    first_full        INTEGER NOT NULL DEFAULT 0 CHECK (first_full IN (0, 1)),
    level             INTEGER NOT NULL DEFAULT 0 CHECK (level >= 0),
    host              TEXT    NOT NULL DEFAULT '',
    agent             TEXT    NOT NULL DEFAULT '',
    reading_ms        INTEGER NOT NULL DEFAULT 0 CHECK (reading_ms >= 0),
    compressing_ms    INTEGER NOT NULL DEFAULT 0 CHECK (compressing_ms >= 0),
    waiting_ms        INTEGER NOT NULL DEFAULT 0 CHECK (waiting_ms >= 0),
    UNIQUE (session_id, position),
    CHECK (bytes = unchanged_bytes + dup_bytes + new_bytes),
    CHECK ((status = 'done') = (backup_id IS NOT NULL))
) STRICT;
CREATE INDEX details_by_start ON details (started_ms, run_id, session_id, position);
CREATE INDEX details_by_end ON details (finished_ms);
CREATE INDEX details_of_namespace ON details (namespace_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_job ON details (job_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_vm ON details (vm_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_disk ON details (vm_id, disk, started_ms, run_id, session_id, position);
CREATE INDEX details_of_run ON details (run_id, started_ms, session_id, position);
-- Attempts that made no restore point: by VM, to keep their number bounded, and the latest first.
CREATE INDEX details_without_backup ON details (vm_id, started_ms, session_id, position) WHERE status <> 'done';
CREATE INDEX details_failed_by_end ON details (finished_ms DESC, started_ms, run_id, session_id, position)
    WHERE status <> 'done';

-- Rows of details that stand for several: how many.
CREATE TABLE merged_details (
    session_id BLOB    NOT NULL CHECK (length(session_id) = 16),
    position   INTEGER NOT NULL CHECK (position >= 0),
    rows       INTEGER NOT NULL CHECK (rows >= 2),
    PRIMARY KEY (session_id, position)
) STRICT, WITHOUT ROWID;

-- What was found of a VM's run by comparing it with those before: of its disk that brought most. Statistics, in JSON.
CREATE TABLE findings (
    session_id  BLOB    NOT NULL PRIMARY KEY CHECK (length(session_id) = 16),
    position    INTEGER NOT NULL,
    finished_ms INTEGER NOT NULL,
    found       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX findings_by_end ON findings (finished_ms);

-- Compression details of each VM in each job added up (`sqlite/details/kept.rs`), so that an overview need not read years of
-- them. Statistics must keep no backup from being committed: nothing here refuses a value, and no reference is checked.
CREATE TABLE detail_sums (
    job_id     BLOB,
    vm_id      BLOB,
    rows       INTEGER,
    failed     INTEGER,
    bytes      INTEGER,
    new_bytes  INTEGER,
    post_lc    INTEGER,
    meta_bytes INTEGER,
    wire_bytes INTEGER,
    -- Of rows that are done, with what attempts before them stored in vain.
    done_bytes     INTEGER,
    done_new_bytes INTEGER,
    done_post_lc   INTEGER,
    PRIMARY KEY (job_id, vm_id)
) WITHOUT ROWID;
CREATE INDEX detail_sums_of_vm ON detail_sums (vm_id);

-- Containers on the volume.
CREATE TABLE containers (
    id           INTEGER PRIMARY KEY CHECK (id BETWEEN 0 AND 1099511627775),
    class        TEXT    NOT NULL CHECK (class IN ('data', 'recipe')),
    state        TEXT    NOT NULL CHECK (state IN ('live', 'damaged', 'condemned')),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    -- The run that wrote it; null for containers adopted from a run nobody recorded.
    run_id       BLOB    REFERENCES runs (id),
    stored_bytes INTEGER NOT NULL CHECK (stored_bytes >= 0),
    plain_bytes  INTEGER NOT NULL CHECK (plain_bytes >= 0),
    chunk_count  INTEGER NOT NULL CHECK (chunk_count >= 0),
    created_ms   INTEGER NOT NULL,
    -- When all of it was last read and every byte proved to be what was written; null: not since then.
    proven_ms    INTEGER
) STRICT;
CREATE INDEX containers_of_run ON containers (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX containers_of_namespace ON containers (namespace_id);

-- Sealed containers of backups in progress. A row moves to `containers` with the end of its session, or, when that never
-- came, with the next start: until then it counts for nothing.
CREATE TABLE sealed_containers (
    id           INTEGER PRIMARY KEY CHECK (id BETWEEN 0 AND 1099511627775),
    class        TEXT    NOT NULL CHECK (class IN ('data', 'recipe')),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    stored_bytes INTEGER NOT NULL CHECK (stored_bytes >= 0),
    plain_bytes  INTEGER NOT NULL CHECK (plain_bytes >= 0),
    chunk_count  INTEGER NOT NULL CHECK (chunk_count >= 0),
    created_ms   INTEGER NOT NULL
) STRICT;
CREATE INDEX sealed_containers_of_namespace ON sealed_containers (namespace_id);

-- How far containers are known: every file with a number below has a row in `containers`, so a start need not look for it.
-- One row.
CREATE TABLE settled (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    below    INTEGER NOT NULL CHECK (below BETWEEN 0 AND 1099511627776)
) STRICT;
INSERT INTO settled (only_row, below) VALUES (1, 0);

-- Damaged regions of containers.
CREATE TABLE damage (
    container_id INTEGER NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    -- -1: the container as a whole.
    region       INTEGER NOT NULL CHECK (region BETWEEN -1 AND 4095),
    reason       TEXT    NOT NULL,
    found_ms     INTEGER NOT NULL,
    -- When every chunk of it was found to have another sound copy; null: something may be lost by it.
    healed_ms    INTEGER,
    PRIMARY KEY (container_id, region)
) STRICT, WITHOUT ROWID;

-- The latest change of each container's damage, found or cleared, in the order of the changes: so a process reads what has
-- changed since it last looked. No foreign key, and no row is ever deleted: the numbers must not be used again.
CREATE TABLE damage_changes (
    container_id INTEGER PRIMARY KEY CHECK (container_id BETWEEN 0 AND 1099511627775),
    change       INTEGER NOT NULL UNIQUE CHECK (change >= 1)
) STRICT;

-- Regions of which an agent says that they are not what they should be: content that agents encrypt end to end, of which no
-- one at the server can see it. Backups send what is in them again.
CREATE TABLE reported_regions (
    container_id INTEGER NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    region       INTEGER NOT NULL CHECK (region BETWEEN 0 AND 4095),
    PRIMARY KEY (container_id, region)
) STRICT, WITHOUT ROWID;

-- Groups of containers that parity protects.
CREATE TABLE parity_groups (
    -- That of a container which was never used otherwise.
    number       INTEGER PRIMARY KEY CHECK (number BETWEEN 0 AND 1099511627775),
    -- Containers it was made of. One that is deleted takes its row below with it: then the group protects no more.
    members      INTEGER NOT NULL CHECK (members >= 1),
    stored_bytes INTEGER NOT NULL CHECK (stored_bytes >= 0),
    created_ms   INTEGER NOT NULL,
    -- Whether its blob was found damaged or missing when it was read last.
    damaged      INTEGER NOT NULL DEFAULT 0 CHECK (damaged IN (0, 1))
) STRICT;

-- Containers of a group.
CREATE TABLE parity_members (
    container_id INTEGER PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    number       INTEGER NOT NULL REFERENCES parity_groups (number) ON DELETE CASCADE
) STRICT;
CREATE INDEX parity_members_of_group ON parity_members (number);

-- Containers that were compressed anew at a level, or would not have gained by it: they are not tried at that level again.
CREATE TABLE squeezed (
    container_id INTEGER NOT NULL PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    level        INTEGER NOT NULL CHECK (level BETWEEN 1 AND 22)
) STRICT;

-- The last round that found out whose the live bytes of data containers are. One row.
CREATE TABLE attribution (
    only_row   INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    at_ms      INTEGER NOT NULL,
    -- What is attributed to all restore points adds up to this.
    live_bytes INTEGER NOT NULL CHECK (live_bytes >= 0),
    -- 0: some recipe could not be followed, and what it refers to is not in the sums.
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1))
) STRICT;

-- What only this restore point has, and its part of all live bytes.
CREATE TABLE attributed_backups (
    backup_id        BLOB    NOT NULL PRIMARY KEY REFERENCES backups (id) ON DELETE CASCADE,
    exclusive_bytes  INTEGER NOT NULL CHECK (exclusive_bytes >= 0),
    attributed_bytes INTEGER NOT NULL CHECK (attributed_bytes >= exclusive_bytes)
) STRICT, WITHOUT ROWID;

-- Sums of namespaces, VMs and jobs, as the last round of each day found: 60 days, before them the last of each of 44 weeks. Sums of their own, because the rows above go with their restore points, and the oldest has what all share.
CREATE TABLE attributed_days (
    subject          TEXT    NOT NULL CHECK (subject IN ('namespace', 'vm', 'job')),
    subject_id       BLOB    NOT NULL CHECK (length(subject_id) = 16),
    -- Since the Unix epoch, UTC.
    day              INTEGER NOT NULL,
    restore_points   INTEGER NOT NULL CHECK (restore_points >= 0),
    -- What nothing else has.
    exclusive_bytes  INTEGER NOT NULL CHECK (exclusive_bytes >= 0),
    attributed_bytes INTEGER NOT NULL CHECK (attributed_bytes >= 0),
    PRIMARY KEY (subject, subject_id, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX attributed_days_by_day ON attributed_days (day, subject);

-- What the repository took by the end of each day, as it was last looked at.
CREATE TABLE space_days (
    -- Since the Unix epoch, UTC.
    day             INTEGER NOT NULL PRIMARY KEY,
    -- In the data folder: containers in use by class, parity, and containers that are to go.
    data_bytes      INTEGER NOT NULL CHECK (data_bytes >= 0),
    recipe_bytes    INTEGER NOT NULL CHECK (recipe_bytes >= 0),
    parity_bytes    INTEGER NOT NULL CHECK (parity_bytes >= 0),
    condemned_bytes INTEGER NOT NULL CHECK (condemned_bytes >= 0),
    -- Containers in the bucket; objects there in an archive, also those that are to go.
    bucket_bytes    INTEGER NOT NULL CHECK (bucket_bytes >= 0),
    archive_bytes   INTEGER NOT NULL CHECK (archive_bytes >= 0)
) STRICT, WITHOUT ROWID;

-- How far the scrub is. One row.
CREATE TABLE scrub (
    only_row    INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    -- Passes begun so far.
    pass        INTEGER NOT NULL CHECK (pass >= 0),
    phase       TEXT    NOT NULL CHECK (phase IN ('idle', 'containers', 'restore_points')),
    began_ms    INTEGER NOT NULL,
    -- When the last whole pass ended; null: none did.
    ended_ms    INTEGER,
    -- Containers below this number are done, and those from the second number on are for the next pass.
    container   INTEGER NOT NULL CHECK (container >= 0),
    up_to       INTEGER NOT NULL CHECK (up_to >= 0),
    -- The restore point that was done last, by VM and commit number; null: none in this pass.
    vm_id       BLOB,
    ordinal     INTEGER,
    -- The restore point that is being read, and up to where; null: none. Sound: nothing of it was found wrong.
    backup_id   BLOB,
    disk        INTEGER,
    extent      INTEGER,
    sound       INTEGER,
    -- Containers, then restore points, that are done in this phase.
    done        INTEGER NOT NULL CHECK (done >= 0)
) STRICT;
INSERT INTO scrub (only_row, pass, phase, began_ms, container, up_to, done) VALUES (1, 0, 'idle', 0, 0, 0, 0);

-- Extent digests that are not the digest of what the extent node is made of, as this server found by reading it. Both are
-- hashes, so a row stays true for ever.
CREATE TABLE false_digests (
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    node         BLOB    NOT NULL CHECK (length(node) = 32),
    digest       BLOB    NOT NULL CHECK (length(digest) = 32),
    found_ms     INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, node, digest)
) STRICT, WITHOUT ROWID;

-- Access tokens; only a hash of the secret is kept.
CREATE TABLE tokens (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    role         TEXT    NOT NULL CHECK (role IN ('backup', 'restore', 'operator', 'admin')),
    -- Whose the VMs are that it backs up first.
    owner        TEXT    NOT NULL CHECK (length(owner) > 0),
    secret_hash  BLOB    NOT NULL CHECK (length(secret_hash) = 32),
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER,
    revoked_ms   INTEGER,
    last_used_ms INTEGER,
    -- Set on every token of a catalog that was recovered, until an admin enables it: it may have been revoked since.
    disabled_ms  INTEGER,
    -- Of a token that waits for its agent: until when its join code can be redeemed, and when it was. Until then the hash is
    -- that of the code's one-time secret.
    join_until_ms INTEGER,
    joined_ms     INTEGER CHECK (joined_ms IS NULL OR join_until_ms IS NOT NULL)
) STRICT, WITHOUT ROWID;
-- A name means one token, as far as anybody can still use it; revoked ones give theirs back.
CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked_ms IS NULL;

-- Namespaces a token is for. No row: every one.
CREATE TABLE token_namespaces (
    token_id     BLOB NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    namespace_id BLOB NOT NULL REFERENCES namespaces (id),
    PRIMARY KEY (token_id, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX token_namespaces_of_namespace ON token_namespaces (namespace_id);

-- VM names a token is for, as globs. No row: every name.
CREATE TABLE token_vm_patterns (
    token_id BLOB    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    position INTEGER NOT NULL CHECK (position >= 0),
    pattern  TEXT    NOT NULL CHECK (length(pattern) > 0),
    PRIMARY KEY (token_id, position)
) STRICT, WITHOUT ROWID;

-- Agents that back up by the clock, as they last reported: of each token, by machine.
CREATE TABLE agents (
    token_id    BLOB    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    host        TEXT    NOT NULL CHECK (length(host) > 0),
    version     TEXT    NOT NULL,
    seen_ms     INTEGER NOT NULL,
    -- When a backup is due next; null: none is.
    next_run_ms INTEGER,
    vms         INTEGER NOT NULL CHECK (vms >= 0),
    -- What is wrong with it; empty: nothing.
    problem     TEXT    NOT NULL,
    PRIMARY KEY (token_id, host)
) STRICT, WITHOUT ROWID;

-- Records of tokens that end by themselves: logins in browsers, with the CSRF token as payload. Of the cookie only a hash:
-- anyone who reads this table cannot log in with it. Rights are those of the token, asked for at every call, so a record is worth
-- nothing once its token has ended.
CREATE TABLE expiring_records (
    id_hash    BLOB    NOT NULL PRIMARY KEY CHECK (length(id_hash) = 32),
    token_id   BLOB    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    payload    TEXT    NOT NULL CHECK (length(payload) > 0),
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL CHECK (expires_ms > created_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX expiring_records_of_token ON expiring_records (token_id, created_ms, id_hash);
CREATE INDEX expiring_records_by_end ON expiring_records (expires_ms);

-- Who did what. An entry may stand for several events of one kind, by one actor, on one object.
CREATE TABLE audit (
    -- Higher than every earlier one: the log's order, whatever the clock did.
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    -- The first event, and the last (null: there was one).
    at_ms      INTEGER NOT NULL,
    last_ms    INTEGER,
    count      INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1),
    -- What makes events the same; null: the entry always stands alone.
    repeat_key TEXT,
    who        TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    object     TEXT    NOT NULL,
    detail     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_repeats ON audit (action, who, at_ms) WHERE repeat_key IS NOT NULL;

-- Rules of what is kept, locked and archived.
CREATE TABLE retention_policies (
    id                 BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id       BLOB    NOT NULL REFERENCES namespaces (id),
    name               TEXT    NOT NULL CHECK (length(name) > 0),
    -- Names; null: every VM, or job, of the namespace.
    vm                 TEXT    CHECK (length(vm) > 0),
    job                TEXT    CHECK (length(job) > 0),
    keep_last          INTEGER NOT NULL CHECK (keep_last >= 0),
    keep_hourly        INTEGER NOT NULL CHECK (keep_hourly >= 0),
    keep_daily         INTEGER NOT NULL CHECK (keep_daily >= 0),
    keep_weekly        INTEGER NOT NULL CHECK (keep_weekly >= 0),
    keep_monthly       INTEGER NOT NULL CHECK (keep_monthly >= 0),
    keep_yearly        INTEGER NOT NULL CHECK (keep_yearly >= 0),
    keep_within_days   INTEGER NOT NULL CHECK (keep_within_days >= 0),
    -- Calendar expression; empty: run by hand only.
    schedule           TEXT    NOT NULL,
    time_zone          TEXT    NOT NULL,
    -- Each new restore point in its scope is locked for that many days; 0: not at all.
    lock_days          INTEGER NOT NULL CHECK (lock_days >= 0),
    -- When data of the restore points in its scope may go to an archive; null: as the server's settings say.
    archive_after_days INTEGER CHECK (archive_after_days >= 0),
    enabled            INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    -- Since when it rests, because the catalog is an older copy; null: it does not. One that rests deletes nothing until
    -- someone sets it, and locks on.
    resting_since_ms   INTEGER,
    updated_ms         INTEGER NOT NULL,
    updated_by         TEXT    NOT NULL,
    UNIQUE (namespace_id, name)
) STRICT, WITHOUT ROWID;

-- Long work that people or schedules start and watch.
CREATE TABLE tasks (
    id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    kind            TEXT    NOT NULL CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy', 'audit', 'thaw')),
    status          TEXT    NOT NULL CHECK (status IN
                        ('queued', 'running', 'paused', 'interrupted', 'done', 'failed', 'cancelled')),
    who             TEXT    NOT NULL,
    -- Whether it was its time, rather than a person, that started it.
    scheduled       INTEGER NOT NULL CHECK (scheduled IN (0, 1)),
    -- Written and read by its kind, as is `figures`.
    options         TEXT    NOT NULL,
    created_ms      INTEGER NOT NULL,
    started_ms      INTEGER,
    -- Null exactly while there is more to do.
    finished_ms     INTEGER CHECK ((finished_ms IS NULL) = (status IN ('queued', 'running', 'paused', 'interrupted'))),
    -- When a paused task goes on by itself; null: it is not paused.
    paused_until_ms INTEGER,
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    done            INTEGER NOT NULL CHECK (done >= 0),
    -- 0: not known.
    total           INTEGER NOT NULL CHECK (total >= 0),
    unit            TEXT    NOT NULL,
    -- Where a later attempt goes on; empty: from the beginning.
    place           TEXT    NOT NULL,
    figures         TEXT    NOT NULL,
    error           TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_of_kind ON tasks (kind, id);
CREATE INDEX tasks_unfinished ON tasks (id) WHERE finished_ms IS NULL;

-- What tasks tell while they work.
CREATE TABLE task_log (
    task_id BLOB    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL CHECK (number >= 1),
    at_ms   INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

-- When tasks of a kind are started by the clock. No row: as the server does by itself.
CREATE TABLE schedules (
    kind       TEXT    NOT NULL PRIMARY KEY CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy', 'audit', 'thaw')),
    expression TEXT    NOT NULL,
    time_zone  TEXT    NOT NULL,
    options    TEXT    NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    who        TEXT    NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Up to when everything that was due by a schedule has been started, or left out. By the schedule's name: a kind, or what a
-- kind calls one of several.
CREATE TABLE schedule_marks (
    name  TEXT    NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Guards, the last line of defence (L2, L3, L4, N2): whatever statement of whatever process changes these rows, a locked backup
-- stays, no lock gets shorter, their clock never goes back, and a namespace keeps its key. Methods ask before they
-- write; these are for the one that forgets to.
CREATE TRIGGER locked_backup_stays BEFORE DELETE ON backups
    WHEN old.hold_reason IS NOT NULL
        OR old.locked_until_ms > coalesce((SELECT now_ms FROM lock_clock), old.locked_until_ms - 1)
BEGIN
    SELECT RAISE(ABORT, 'the restore point is locked');
END;
CREATE TRIGGER lock_only_lengthens BEFORE UPDATE OF locked_until_ms ON backups
    WHEN old.locked_until_ms IS NOT NULL AND coalesce(new.locked_until_ms < old.locked_until_ms, true)
BEGIN
    SELECT RAISE(ABORT, 'a lock never gets shorter');
END;
CREATE TRIGGER lock_clock_never_goes_back BEFORE UPDATE ON lock_clock
    WHEN old.now_ms IS NOT NULL AND coalesce(new.now_ms < old.now_ms, true)
BEGIN
    SELECT RAISE(ABORT, 'the lock clock never goes back');
END;
CREATE TRIGGER lock_clock_stays BEFORE DELETE ON lock_clock
BEGIN
    SELECT RAISE(ABORT, 'the lock clock never goes back');
END;
CREATE TRIGGER namespaces_keep_their_key BEFORE UPDATE OF key_id ON namespaces
    WHEN old.key_id IS NOT NULL AND new.key_id IS NOT old.key_id
BEGIN
    SELECT RAISE(ABORT, 'the key of an end-to-end encrypted namespace cannot be changed');
END;
