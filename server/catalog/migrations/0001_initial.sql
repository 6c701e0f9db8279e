-- The catalog as first released. Identifiers are ULIDs as 16 bytes, times are milliseconds since the Unix
-- epoch, byte counts are bytes. Never edit a released migration: add the next one.

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
    next_container       INTEGER NOT NULL CHECK (next_container BETWEEN 1 AND 1099511627776)
) STRICT;

CREATE TABLE namespaces (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT    NOT NULL UNIQUE CHECK (length(name) > 0),
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE vms (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    created_ms   INTEGER NOT NULL,
    -- Name first, so that a name is also found without knowing the namespace.
    UNIQUE (name, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX vms_of_namespace ON vms (namespace_id, name);

CREATE TABLE jobs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    created_ms   INTEGER NOT NULL,
    UNIQUE (name, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_of_namespace ON jobs (namespace_id);

-- One execution of a job. Widened by every session that joins it.
CREATE TABLE runs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    job_id       BLOB    NOT NULL REFERENCES jobs (id),
    started_ms   INTEGER NOT NULL,
    finished_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_of_namespace ON runs (namespace_id);
CREATE INDEX runs_of_job ON runs (job_id, started_ms);

CREATE TABLE backups (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    -- The session that made it; what makes a repeated commit recognisable.
    session_id   BLOB    NOT NULL UNIQUE CHECK (length(session_id) = 16),
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    vm_id        BLOB    NOT NULL REFERENCES vms (id),
    job_id       BLOB    NOT NULL REFERENCES jobs (id),
    run_id       BLOB    NOT NULL REFERENCES runs (id),
    -- Order of commits of this VM: "latest" must not depend on a clock that may be set back.
    ordinal      INTEGER NOT NULL CHECK (ordinal >= 1),
    started_ms   INTEGER NOT NULL,
    finished_ms  INTEGER NOT NULL,
    client_host  TEXT    NOT NULL,
    UNIQUE (vm_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX backups_by_start ON backups (started_ms, id);
CREATE INDEX backups_of_namespace ON backups (namespace_id, started_ms, id);
CREATE INDEX backups_of_vm ON backups (vm_id, started_ms, id);
CREATE INDEX backups_of_job ON backups (job_id, started_ms, id);
CREATE INDEX backups_of_run ON backups (run_id);

CREATE TABLE disks (
    backup_id    BLOB    NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    position     INTEGER NOT NULL CHECK (position >= 0),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    size_bytes   INTEGER NOT NULL CHECK (size_bytes >= 0),
    data_bytes   INTEGER NOT NULL CHECK (data_bytes BETWEEN 0 AND size_bytes),
    extent_count INTEGER NOT NULL CHECK (extent_count >= 0),
    root         BLOB    NOT NULL CHECK (length(root) = 32),
    PRIMARY KEY (backup_id, position),
    UNIQUE (backup_id, name)
) STRICT, WITHOUT ROWID;

-- Compression details: one row a session and disk, of failed sessions too. History: it outlives the
-- backup it tells of, so backup_id is no foreign key.
CREATE TABLE details (
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
    PRIMARY KEY (session_id, position),
    CHECK (bytes = unchanged_bytes + dup_bytes + new_bytes),
    CHECK ((status = 'done') = (backup_id IS NOT NULL))
) STRICT;
CREATE INDEX details_by_start ON details (started_ms, run_id, session_id, position);
CREATE INDEX details_of_namespace ON details (namespace_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_job ON details (job_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_vm ON details (vm_id, started_ms, run_id, session_id, position);
CREATE INDEX details_of_run ON details (run_id, started_ms, session_id, position);

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
    created_ms   INTEGER NOT NULL
) STRICT;
CREATE INDEX containers_of_run ON containers (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX containers_of_namespace ON containers (namespace_id);

CREATE TABLE damage (
    container_id INTEGER NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    -- The damaged region; -1 for the container as a whole.
    region       INTEGER NOT NULL CHECK (region BETWEEN -1 AND 4095),
    reason       TEXT    NOT NULL,
    found_ms     INTEGER NOT NULL,
    PRIMARY KEY (container_id, region)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name         TEXT    NOT NULL CHECK (length(name) > 0),
    role         TEXT    NOT NULL CHECK (role IN ('backup', 'restore', 'operator', 'admin')),
    secret_hash  BLOB    NOT NULL CHECK (length(secret_hash) = 32),
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER,
    revoked_ms   INTEGER,
    last_used_ms INTEGER
) STRICT, WITHOUT ROWID;
-- A name means one token, as far as anybody can still use it; revoked ones give theirs back.
CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked_ms IS NULL;

-- A token's scope. No row: every namespace.
CREATE TABLE token_namespaces (
    token_id     BLOB NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    namespace_id BLOB NOT NULL REFERENCES namespaces (id),
    PRIMARY KEY (token_id, namespace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX token_namespaces_of_namespace ON token_namespaces (namespace_id);

CREATE TABLE audit (
    -- Higher than every earlier one: the log's order, whatever the clock did.
    id     BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    at_ms  INTEGER NOT NULL,
    who    TEXT    NOT NULL,
    action TEXT    NOT NULL,
    object TEXT    NOT NULL,
    detail TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
