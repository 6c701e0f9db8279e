-- How often the catalog has begun to delete restore points or containers. Raised in the transaction that begins it, and then
-- on the volume: of a volume that is further the catalog is an older copy.
ALTER TABLE repository ADD COLUMN generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0);
