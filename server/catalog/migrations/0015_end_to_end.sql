-- Namespaces of which agents encrypt the content themselves, and the id of the key they do it with. Set when the namespace
-- is created, and never changed: what is stored was named and sealed with that key.
ALTER TABLE namespaces ADD COLUMN key_id BLOB CHECK (key_id IS NULL OR length(key_id) = 8);

CREATE TRIGGER namespaces_keep_their_key BEFORE UPDATE OF key_id ON namespaces
WHEN old.key_id IS NOT NULL AND new.key_id IS NOT old.key_id
BEGIN
    SELECT RAISE(ABORT, 'the key of an end-to-end encrypted namespace cannot be changed');
END;
