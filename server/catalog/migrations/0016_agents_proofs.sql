-- What only agents can prove: content that they encrypt end to end.

-- Regions of which an agent says that they are not what they should be, which no one at the server can see: backups send
-- what is in them again.
CREATE TABLE reported_regions (
    container_id INTEGER NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    region       INTEGER NOT NULL CHECK (region BETWEEN 0 AND 4095),
    PRIMARY KEY (container_id, region)
) STRICT, WITHOUT ROWID;

-- Whether an agent read it, rather than the server.
ALTER TABLE verifications ADD COLUMN by_agent INTEGER NOT NULL DEFAULT 0 CHECK (by_agent IN (0, 1));

-- When an agent last read all of the restore point, or all of any restore point of the VM, and found it sound; null: not
-- since then. That of a VM outlives the restore point.
ALTER TABLE backups ADD COLUMN agent_verified_ms INTEGER;
ALTER TABLE vms ADD COLUMN agent_verified_ms INTEGER;
