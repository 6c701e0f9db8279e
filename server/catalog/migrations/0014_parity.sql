-- Groups of containers that parity protects.

-- A group's number is one of a container that was never used otherwise.
CREATE TABLE parity_groups (
    number       INTEGER PRIMARY KEY CHECK (number BETWEEN 0 AND 1099511627775),
    -- Containers it was made of. One that is deleted takes its row below with it: then the group protects no more.
    members      INTEGER NOT NULL CHECK (members >= 1),
    stored_bytes INTEGER NOT NULL CHECK (stored_bytes >= 0),
    created_ms   INTEGER NOT NULL,
    -- Whether its blob was found damaged or missing when it was read last.
    damaged      INTEGER NOT NULL DEFAULT 0 CHECK (damaged IN (0, 1))
) STRICT;

CREATE TABLE parity_members (
    container_id INTEGER PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    number       INTEGER NOT NULL REFERENCES parity_groups (number) ON DELETE CASCADE
) STRICT;
CREATE INDEX parity_members_of_group ON parity_members (number);
