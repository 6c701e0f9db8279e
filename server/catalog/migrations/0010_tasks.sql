-- Long work that people or schedules start and watch: reclaim, scrub, verification, policy runs.

CREATE TABLE tasks (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    kind        TEXT    NOT NULL CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy')),
    status      TEXT    NOT NULL CHECK (status IN
                    ('queued', 'running', 'paused', 'interrupted', 'done', 'failed', 'cancelled')),
    who         TEXT    NOT NULL,
    -- Whether it was its time, rather than a person, that started it.
    scheduled   INTEGER NOT NULL CHECK (scheduled IN (0, 1)),
    -- Written and read by its kind, as is `figures`.
    options     TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    started_ms  INTEGER,
    -- Null exactly while there is more to do.
    finished_ms INTEGER CHECK ((finished_ms IS NULL) = (status IN ('queued', 'running', 'paused', 'interrupted'))),
    attempts    INTEGER NOT NULL CHECK (attempts >= 0),
    done        INTEGER NOT NULL CHECK (done >= 0),
    -- 0: not known.
    total       INTEGER NOT NULL CHECK (total >= 0),
    unit        TEXT    NOT NULL,
    -- Where a later attempt goes on; empty: from the beginning.
    place       TEXT    NOT NULL,
    figures     TEXT    NOT NULL,
    error       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_of_kind ON tasks (kind, id);
CREATE INDEX tasks_unfinished ON tasks (id) WHERE finished_ms IS NULL;

-- What tasks tell while they work.
CREATE TABLE task_log (
    task_id BLOB    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL CHECK (number >= 1),
    at_ms   INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

-- When tasks of a kind are started by the clock. No row: as the server does by itself.
CREATE TABLE schedules (
    kind       TEXT    NOT NULL PRIMARY KEY CHECK (kind IN ('reclaim', 'scrub', 'verify', 'policy')),
    expression TEXT    NOT NULL,
    time_zone  TEXT    NOT NULL,
    options    TEXT    NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    who        TEXT    NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Up to when everything that was due by a schedule has been started, or left out. By the schedule's name: a kind, or what a
-- kind calls one of several.
CREATE TABLE schedule_marks (
    name  TEXT    NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
