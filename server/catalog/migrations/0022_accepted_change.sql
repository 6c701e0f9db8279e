-- Whether a disk was smaller than in the restore point before, or gone, and the agent was told to go on.
ALTER TABLE backups ADD COLUMN accepted_change INTEGER NOT NULL DEFAULT 0 CHECK (accepted_change IN (0, 1));
