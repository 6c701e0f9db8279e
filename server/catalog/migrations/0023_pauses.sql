-- When a paused task goes on by itself; null: it is not paused.
ALTER TABLE tasks ADD COLUMN paused_until_ms INTEGER;
