-- Restore points of which something may be lost that no row of a container tells of: entered from the volume, or a read met
-- something that is nowhere. Until everything they refer to was looked up.
CREATE TABLE in_doubt (
    backup_id BLOB PRIMARY KEY REFERENCES backups(id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
