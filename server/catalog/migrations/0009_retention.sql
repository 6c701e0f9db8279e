-- What keeps restore points from being deleted, how they are deleted, and policies about both.

ALTER TABLE backups ADD COLUMN locked_until_ms INTEGER;
-- Of a legal hold, which has no end; null: there is none.
ALTER TABLE backups ADD COLUMN hold_reason TEXT CHECK (length(hold_reason) > 0);
ALTER TABLE backups ADD COLUMN hold_who TEXT;
ALTER TABLE backups ADD COLUMN hold_since_ms INTEGER;

-- The revision of the point on the volume, and the one that says what this row says. The row says more than its point
-- as long as the second is higher.
ALTER TABLE backups ADD COLUMN point_revision INTEGER NOT NULL DEFAULT 1 CHECK (point_revision >= 1);
ALTER TABLE backups ADD COLUMN point_wanted INTEGER NOT NULL DEFAULT 1 CHECK (point_wanted >= 1);
CREATE INDEX backups_locked ON backups (locked_until_ms) WHERE locked_until_ms IS NOT NULL;
CREATE INDEX backups_with_stale_points ON backups (id) WHERE point_wanted > point_revision;

-- Set: it has no restore points and is in no overview; its history stays. A backup of that name takes it back.
ALTER TABLE vms ADD COLUMN removed_ms INTEGER;

-- The time that locks are compared with; null until it is first advanced.
CREATE TABLE lock_clock (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    now_ms   INTEGER
) STRICT;
INSERT INTO lock_clock (only_row, now_ms) VALUES (1, NULL);

-- The last line of defence: whatever deletes a row of `backups`, a locked one stays, and no lock gets shorter.
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

CREATE TABLE retention_policies (
    id               BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace_id     BLOB    NOT NULL REFERENCES namespaces (id),
    name             TEXT    NOT NULL CHECK (length(name) > 0),
    -- Names; null: every VM, or job, of the namespace.
    vm               TEXT    CHECK (length(vm) > 0),
    job              TEXT    CHECK (length(job) > 0),
    keep_last        INTEGER NOT NULL CHECK (keep_last >= 0),
    keep_hourly      INTEGER NOT NULL CHECK (keep_hourly >= 0),
    keep_daily       INTEGER NOT NULL CHECK (keep_daily >= 0),
    keep_weekly      INTEGER NOT NULL CHECK (keep_weekly >= 0),
    keep_monthly     INTEGER NOT NULL CHECK (keep_monthly >= 0),
    keep_yearly      INTEGER NOT NULL CHECK (keep_yearly >= 0),
    keep_within_days INTEGER NOT NULL CHECK (keep_within_days >= 0),
    -- Calendar expression; empty: run by hand only.
    schedule         TEXT    NOT NULL,
    time_zone        TEXT    NOT NULL,
    -- Each new restore point in its scope is locked for that many days; 0: not at all.
    lock_days        INTEGER NOT NULL CHECK (lock_days >= 0),
    enabled          INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    updated_ms       INTEGER NOT NULL,
    updated_by       TEXT    NOT NULL,
    UNIQUE (namespace_id, name)
) STRICT, WITHOUT ROWID;
