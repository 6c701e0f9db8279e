-- What several processes on one catalog need of it.

-- Who of them holds what. A lease that is not renewed ends by itself, so a process that dies blocks nothing for
-- longer than its leases last.
CREATE TABLE leases (
    name     TEXT    NOT NULL PRIMARY KEY CHECK (length(name) > 0),
    owner    BLOB    NOT NULL CHECK (length(owner) = 16),
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_end ON leases (until_ms);

-- The latest change of each container's damage, found or cleared, in the order of the changes: so a process reads
-- what has changed since it last looked. No foreign key, and no row is ever deleted: the numbers must not be used
-- again.
CREATE TABLE damage_changes (
    container_id INTEGER PRIMARY KEY CHECK (container_id BETWEEN 0 AND 1099511627775),
    change       INTEGER NOT NULL UNIQUE CHECK (change >= 1)
) STRICT;
INSERT INTO damage_changes (container_id, change)
    SELECT container_id, row_number() OVER (ORDER BY container_id)
    FROM (SELECT DISTINCT container_id FROM damage);
