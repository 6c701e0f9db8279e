-- Restore points that the volume knows of as well, and tokens that wait for an admin.

-- The highest commit number given to a backup, and whether every backup is known to have its point on the volume.
ALTER TABLE repository ADD COLUMN last_commit INTEGER NOT NULL DEFAULT 0 CHECK (last_commit >= 0);
ALTER TABLE repository ADD COLUMN points_written INTEGER NOT NULL DEFAULT 0 CHECK (points_written IN (0, 1));

-- A backup's ordinal is its commit number from now on: counted over the repository, and still rising within a VM. Backups
-- that exist keep their order within their VMs. First out of the way, because no two of a VM may be equal at any moment.
CREATE TABLE renumbered (id BLOB NOT NULL PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO renumbered (id, number) SELECT id, row_number() OVER (ORDER BY ordinal, id) FROM backups;
UPDATE backups SET ordinal = ordinal + 1099511627776;
UPDATE backups SET ordinal = (SELECT number FROM renumbered WHERE renumbered.id = backups.id);
DROP TABLE renumbered;
UPDATE repository SET last_commit = (SELECT count(*) FROM backups);

-- Set on every token of a catalog that was recovered: one of them may have been revoked since.
ALTER TABLE tokens ADD COLUMN disabled_ms INTEGER;
