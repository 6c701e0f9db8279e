-- Disks that belong to the VM but could not be read for this restore point: their names, one a line (a name has no
-- control characters). Empty: the restore point is complete, as far as the agent said.
ALTER TABLE backups ADD COLUMN missing_disks TEXT NOT NULL DEFAULT '';
