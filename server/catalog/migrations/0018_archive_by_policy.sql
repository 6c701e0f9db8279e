-- When data of the restore points in a policy's scope may go to an archive; null: as the server's settings say.
ALTER TABLE retention_policies ADD COLUMN archive_after_days INTEGER CHECK (archive_after_days >= 0);
-- Since when it rests, because the catalog is an older copy; null: it does not. One that rests deletes nothing until
-- someone sets it, and locks on.
ALTER TABLE retention_policies ADD COLUMN resting_since_ms INTEGER;
