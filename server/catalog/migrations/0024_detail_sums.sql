-- Compression details of each VM in each job added up, kept by the triggers below whatever changes the rows, so that an
-- overview need not read years of them. A sum ends at 2^62, since a disk may claim a pebibyte, and then stays there.
-- Statistics must keep no backup from being committed: nothing here refuses a value, and no reference is checked. Up to the
-- first trigger, these are also the statements that make the table anew (`details/sums.rs`); the start fills it.
DROP TABLE IF EXISTS detail_sums;
CREATE TABLE detail_sums (
    job_id     BLOB,
    vm_id      BLOB,
    rows       INTEGER,
    failed     INTEGER,
    bytes      INTEGER,
    new_bytes  INTEGER,
    post_lc    INTEGER,
    meta_bytes INTEGER,
    wire_bytes INTEGER,
    PRIMARY KEY (job_id, vm_id)
) WITHOUT ROWID;
CREATE INDEX detail_sums_of_vm ON detail_sums (vm_id);

CREATE TRIGGER sums_of_new_row AFTER INSERT ON details BEGIN
    INSERT INTO detail_sums (job_id, vm_id, rows, failed, bytes, new_bytes, post_lc, meta_bytes, wire_bytes)
        SELECT new.job_id, new.vm_id, 1, new.status <> 'done', min(new.bytes, 1 << 62), min(new.new_bytes, 1 << 62),
            min(new.post_lc, 1 << 62), min(new.meta_bytes, 1 << 62), min(new.wire_bytes, 1 << 62) WHERE true
        ON CONFLICT (job_id, vm_id) DO UPDATE SET rows = rows + 1, failed = failed + excluded.failed,
            bytes = min(bytes + excluded.bytes, 1 << 62), new_bytes = min(new_bytes + excluded.new_bytes, 1 << 62),
            post_lc = min(post_lc + excluded.post_lc, 1 << 62),
            meta_bytes = min(meta_bytes + excluded.meta_bytes, 1 << 62),
            wire_bytes = min(wire_bytes + excluded.wire_bytes, 1 << 62);
END;
CREATE TRIGGER sums_of_removed_row AFTER DELETE ON details BEGIN
    UPDATE detail_sums SET rows = rows - 1, failed = failed - (old.status <> 'done'),
            bytes = bytes - iif(bytes < 1 << 62, old.bytes, 0),
            new_bytes = new_bytes - iif(new_bytes < 1 << 62, old.new_bytes, 0),
            post_lc = post_lc - iif(post_lc < 1 << 62, old.post_lc, 0),
            meta_bytes = meta_bytes - iif(meta_bytes < 1 << 62, old.meta_bytes, 0),
            wire_bytes = wire_bytes - iif(wire_bytes < 1 << 62, old.wire_bytes, 0)
        WHERE job_id = old.job_id AND vm_id = old.vm_id;
    DELETE FROM detail_sums WHERE job_id = old.job_id AND vm_id = old.vm_id AND rows = 0;
END;
CREATE TRIGGER sums_of_changed_row AFTER UPDATE ON details BEGIN
    UPDATE detail_sums SET rows = rows - 1, failed = failed - (old.status <> 'done'),
            bytes = bytes - iif(bytes < 1 << 62, old.bytes, 0),
            new_bytes = new_bytes - iif(new_bytes < 1 << 62, old.new_bytes, 0),
            post_lc = post_lc - iif(post_lc < 1 << 62, old.post_lc, 0),
            meta_bytes = meta_bytes - iif(meta_bytes < 1 << 62, old.meta_bytes, 0),
            wire_bytes = wire_bytes - iif(wire_bytes < 1 << 62, old.wire_bytes, 0)
        WHERE job_id = old.job_id AND vm_id = old.vm_id;
    DELETE FROM detail_sums WHERE job_id = old.job_id AND vm_id = old.vm_id AND rows = 0;
    INSERT INTO detail_sums (job_id, vm_id, rows, failed, bytes, new_bytes, post_lc, meta_bytes, wire_bytes)
        SELECT new.job_id, new.vm_id, 1, new.status <> 'done', min(new.bytes, 1 << 62), min(new.new_bytes, 1 << 62),
            min(new.post_lc, 1 << 62), min(new.meta_bytes, 1 << 62), min(new.wire_bytes, 1 << 62) WHERE true
        ON CONFLICT (job_id, vm_id) DO UPDATE SET rows = rows + 1, failed = failed + excluded.failed,
            bytes = min(bytes + excluded.bytes, 1 << 62), new_bytes = min(new_bytes + excluded.new_bytes, 1 << 62),
            post_lc = min(post_lc + excluded.post_lc, 1 << 62),
            meta_bytes = min(meta_bytes + excluded.meta_bytes, 1 << 62),
            wire_bytes = min(wire_bytes + excluded.wire_bytes, 1 << 62);
END;

-- A job's runs; every run has rows. The start counts those that there are.
ALTER TABLE jobs ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER jobs_new_run AFTER INSERT ON runs BEGIN
    UPDATE jobs SET runs = runs + 1 WHERE id = new.job_id;
END;
CREATE TRIGGER jobs_removed_run AFTER DELETE ON runs BEGIN
    UPDATE jobs SET runs = runs - 1 WHERE id = old.job_id;
END;
CREATE TRIGGER jobs_moved_run AFTER UPDATE OF job_id ON runs BEGIN
    UPDATE jobs SET runs = runs - 1 WHERE id = old.job_id;
    UPDATE jobs SET runs = runs + 1 WHERE id = new.job_id;
END;
