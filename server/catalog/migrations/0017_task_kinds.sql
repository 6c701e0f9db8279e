-- More kinds of tasks: `audit` compares the bucket with what is known of it, `thaw` brings back what lies in an archive. Their
-- tables are made anew, for a check cannot be changed; they are small (500 tasks of a kind). `task_log` goes first and comes
-- last: it follows what it refers to.

CREATE TABLE tasks_of_more_kinds (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    kind        TEXT    NOT NULL CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy', 'audit', 'thaw')),
    status      TEXT    NOT NULL CHECK (status IN
                    ('queued', 'running', 'paused', 'interrupted', 'done', 'failed', 'cancelled')),
    who         TEXT    NOT NULL,
    scheduled   INTEGER NOT NULL CHECK (scheduled IN (0, 1)),
    options     TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    started_ms  INTEGER,
    finished_ms INTEGER CHECK ((finished_ms IS NULL) = (status IN ('queued', 'running', 'paused', 'interrupted'))),
    attempts    INTEGER NOT NULL CHECK (attempts >= 0),
    done        INTEGER NOT NULL CHECK (done >= 0),
    total       INTEGER NOT NULL CHECK (total >= 0),
    unit        TEXT    NOT NULL,
    place       TEXT    NOT NULL,
    figures     TEXT    NOT NULL,
    error       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO tasks_of_more_kinds SELECT * FROM tasks;

CREATE TABLE task_log_of_more_kinds (
    task_id BLOB    NOT NULL REFERENCES tasks_of_more_kinds (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL CHECK (number >= 1),
    at_ms   INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO task_log_of_more_kinds SELECT * FROM task_log;

DROP TABLE task_log;
DROP TABLE tasks;
ALTER TABLE tasks_of_more_kinds RENAME TO tasks;
ALTER TABLE task_log_of_more_kinds RENAME TO task_log;
CREATE INDEX tasks_of_kind ON tasks (kind, id);
CREATE INDEX tasks_unfinished ON tasks (id) WHERE finished_ms IS NULL;

CREATE TABLE schedules_of_more_kinds (
    kind       TEXT    NOT NULL PRIMARY KEY CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy', 'audit', 'thaw')),
    expression TEXT    NOT NULL,
    time_zone  TEXT    NOT NULL,
    options    TEXT    NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    who        TEXT    NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO schedules_of_more_kinds SELECT * FROM schedules;
DROP TABLE schedules;
ALTER TABLE schedules_of_more_kinds RENAME TO schedules;
