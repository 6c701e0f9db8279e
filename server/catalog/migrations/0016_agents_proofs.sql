-- What only agents can prove: content that they encrypt end to end.

-- Whether an agent says so, of what no one at the server can read.
ALTER TABLE damage ADD COLUMN reported INTEGER NOT NULL DEFAULT 0 CHECK (reported IN (0, 1));

-- Whether an agent read it, rather than the server.
ALTER TABLE verifications ADD COLUMN by_agent INTEGER NOT NULL DEFAULT 0 CHECK (by_agent IN (0, 1));

-- When an agent last read all of the restore point, or all of any restore point of the VM, and found it sound; null: not
-- since then. That of a VM outlives the restore point.
ALTER TABLE backups ADD COLUMN agent_verified_ms INTEGER;
ALTER TABLE vms ADD COLUMN agent_verified_ms INTEGER;
