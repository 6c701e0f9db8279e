-- Containers that were compressed anew at a level, or would not have gained by it: they are not tried at that level again.
CREATE TABLE squeezed (
    container_id INTEGER NOT NULL PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    level        INTEGER NOT NULL CHECK (level BETWEEN 1 AND 22)
) STRICT;
