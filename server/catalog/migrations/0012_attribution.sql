-- Whose the live bytes of data containers are, as of the last time that was found out. Rows of what has gone since go
-- with it.
CREATE TABLE attribution (
    only_row   INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    at_ms      INTEGER NOT NULL,
    -- What is attributed to all restore points adds up to this.
    live_bytes INTEGER NOT NULL CHECK (live_bytes >= 0),
    -- 0: some recipe could not be followed, and what it refers to is not in the sums.
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1))
) STRICT;

CREATE TABLE attributed_backups (
    backup_id        BLOB    NOT NULL PRIMARY KEY REFERENCES backups (id) ON DELETE CASCADE,
    exclusive_bytes  INTEGER NOT NULL CHECK (exclusive_bytes >= 0),
    attributed_bytes INTEGER NOT NULL CHECK (attributed_bytes >= exclusive_bytes)
) STRICT, WITHOUT ROWID;

-- What only restore points of one VM, or of one job, have.
CREATE TABLE attributed_vms (
    vm_id           BLOB    NOT NULL PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
    exclusive_bytes INTEGER NOT NULL CHECK (exclusive_bytes >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE attributed_jobs (
    job_id          BLOB    NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    exclusive_bytes INTEGER NOT NULL CHECK (exclusive_bytes >= 0)
) STRICT, WITHOUT ROWID;
