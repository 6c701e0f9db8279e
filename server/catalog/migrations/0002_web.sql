-- What a web UI needs: logins of people in browsers, what verifying restore points found, and a disk's past
-- found without reading its VM's other disks.

-- A cookie's hash: whoever reads this table cannot log in with it. Rights are those of the token, asked
-- for at every call, so a session is worth nothing once its token has ended.
CREATE TABLE web_sessions (
    id_hash    BLOB    NOT NULL PRIMARY KEY CHECK (length(id_hash) = 32),
    token_id   BLOB    NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    csrf       TEXT    NOT NULL CHECK (length(csrf) > 0),
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL CHECK (expires_ms > created_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX web_sessions_of_token ON web_sessions (token_id, created_ms, id_hash);
CREATE INDEX web_sessions_by_end ON web_sessions (expires_ms);

-- What reading restore points back found, the latest few of each.
CREATE TABLE verifications (
    backup_id BLOB    NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    -- Order of recording: "the newest" must not depend on a clock that may be set back.
    ordinal   INTEGER NOT NULL CHECK (ordinal >= 1),
    at_ms     INTEGER NOT NULL,
    who       TEXT    NOT NULL,
    ok        INTEGER NOT NULL CHECK (ok IN (0, 1)),
    detail    TEXT    NOT NULL,
    PRIMARY KEY (backup_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE INDEX details_of_disk ON details (vm_id, disk, started_ms, run_id, session_id, position);
