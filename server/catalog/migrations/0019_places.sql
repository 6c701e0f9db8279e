-- Where the data of each restore point lies, as of the last time that was looked up: plain bytes without holes and zeros,
-- so their sum is that of its disks but for what is lost. A restore point that came since has no row; rows of what has gone
-- go with it.
CREATE TABLE backup_places (
    backup_id     BLOB    NOT NULL PRIMARY KEY REFERENCES backups (id) ON DELETE CASCADE,
    at_ms         INTEGER NOT NULL,
    here_bytes    INTEGER NOT NULL CHECK (here_bytes >= 0),
    -- In the bucket alone, where it can be read.
    bucket_bytes  INTEGER NOT NULL CHECK (bucket_bytes >= 0),
    -- In the bucket alone, where it must be thawed before it can be read.
    archive_bytes INTEGER NOT NULL CHECK (archive_bytes >= 0)
) STRICT, WITHOUT ROWID;
