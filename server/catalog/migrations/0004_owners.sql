-- Whose a VM is, and which claims of clients proved false.

-- Until now every token of a namespace wrote every VM of it. All that exists is given one owner, so that what
-- works today goes on; an operator separates owners when there is a reason to.
ALTER TABLE tokens ADD COLUMN owner TEXT NOT NULL DEFAULT 'default' CHECK (length(owner) > 0);

-- VM names a token is for, as globs. No row: every name.
CREATE TABLE token_vm_patterns (
    token_id BLOB    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    position INTEGER NOT NULL CHECK (position >= 0),
    pattern  TEXT    NOT NULL CHECK (length(pattern) > 0),
    PRIMARY KEY (token_id, position)
) STRICT, WITHOUT ROWID;

-- Null: no backup of it was ever committed, so it is no one's yet.
ALTER TABLE vms ADD COLUMN owner TEXT CHECK (length(owner) > 0);
UPDATE vms SET owner = 'default';

-- The VM's owner when the backup was committed: extent digests are that owner's claims.
ALTER TABLE backups ADD COLUMN owner TEXT NOT NULL DEFAULT 'default' CHECK (length(owner) > 0);

-- The owner whose token began the run; no one else's may join it.
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT 'default' CHECK (length(owner) > 0);

-- Extent digests that are not the digest of what the extent node is made of, as this server found by reading it.
-- Both are hashes, so a row stays true for ever.
CREATE TABLE false_digests (
    namespace_id BLOB    NOT NULL REFERENCES namespaces (id),
    node         BLOB    NOT NULL CHECK (length(node) = 32),
    digest       BLOB    NOT NULL CHECK (length(digest) = 32),
    found_ms     INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, node, digest)
) STRICT, WITHOUT ROWID;
