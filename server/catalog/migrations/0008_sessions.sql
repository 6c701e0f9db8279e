-- Damage of which nothing is lost, and how far the containers are known.

-- When every chunk of it was found to have another sound copy; null: something may be lost by it.
ALTER TABLE damage ADD COLUMN healed_ms INTEGER;

-- Every container file with a lower number has a row in `containers`: a start need not look for it.
CREATE TABLE settled (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    below    INTEGER NOT NULL CHECK (below BETWEEN 0 AND 1099511627776)
) STRICT;
INSERT INTO settled (only_row, below) VALUES (1, 0);

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
