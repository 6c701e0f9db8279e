-- What was read again and proved sound, and which restore points lack something.

-- When all of the container was last read and every byte proved to be what was written; null: not since then.
ALTER TABLE containers ADD COLUMN proven_ms INTEGER;

-- When all that the restore point refers to was last read and every extent hashed to its digest; null: not yet.
ALTER TABLE backups ADD COLUMN proven_ms INTEGER;

-- How far the scrub is.
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
    end         INTEGER NOT NULL CHECK (end >= 0),
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
INSERT INTO scrub (only_row, pass, phase, began_ms, container, end, done) VALUES (1, 0, 'idle', 0, 0, 0, 0);

-- What cannot be restored of the disks of restore points; no row: nothing is known to be lost.
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
