-- What a namespace may take, what it takes, and audit entries that stand for several events.

-- No row, or null: no limit.
CREATE TABLE namespace_quotas (
    namespace_id     BLOB    NOT NULL PRIMARY KEY REFERENCES namespaces (id),
    stored_bytes     INTEGER CHECK (stored_bytes >= 0),
    protected_bytes  INTEGER CHECK (protected_bytes >= 0),
    restore_points   INTEGER CHECK (restore_points >= 0),
    sessions_per_day INTEGER CHECK (sessions_per_day >= 0)
) STRICT, WITHOUT ROWID;

-- Sums over other tables, kept by the triggers below whatever changes those tables, so that asking costs one row.
CREATE TABLE namespace_usage (
    namespace_id    BLOB    NOT NULL PRIMARY KEY REFERENCES namespaces (id),
    -- Of its containers, whatever their state.
    stored_bytes    INTEGER NOT NULL DEFAULT 0,
    -- Data of the newest restore point of each VM.
    protected_bytes INTEGER NOT NULL DEFAULT 0,
    restore_points  INTEGER NOT NULL DEFAULT 0,
    vms             INTEGER NOT NULL DEFAULT 0,
    jobs            INTEGER NOT NULL DEFAULT 0,
    -- Sessions begun on a day (since the Unix epoch, UTC); of any other day none.
    sessions_day    INTEGER NOT NULL DEFAULT 0,
    sessions        INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO namespace_usage (namespace_id, stored_bytes, protected_bytes, restore_points, vms, jobs)
    SELECT n.id,
        (SELECT coalesce(sum(c.stored_bytes), 0) FROM containers c WHERE c.namespace_id = n.id),
        (SELECT coalesce(sum(k.data_bytes), 0) FROM vms v
            JOIN backups b ON b.vm_id = v.id
                AND b.ordinal = (SELECT max(l.ordinal) FROM backups l WHERE l.vm_id = v.id)
            JOIN disks k ON k.backup_id = b.id
            WHERE v.namespace_id = n.id),
        (SELECT count(*) FROM backups b WHERE b.namespace_id = n.id),
        (SELECT count(*) FROM vms v WHERE v.namespace_id = n.id),
        (SELECT count(*) FROM jobs j WHERE j.namespace_id = n.id)
    FROM namespaces n;

CREATE TRIGGER usage_of_new_namespace AFTER INSERT ON namespaces BEGIN
    INSERT INTO namespace_usage (namespace_id) VALUES (new.id);
END;

CREATE TRIGGER usage_of_new_container AFTER INSERT ON containers BEGIN
    UPDATE namespace_usage SET stored_bytes = stored_bytes + new.stored_bytes WHERE namespace_id = new.namespace_id;
END;
CREATE TRIGGER usage_of_removed_container AFTER DELETE ON containers BEGIN
    UPDATE namespace_usage SET stored_bytes = stored_bytes - old.stored_bytes WHERE namespace_id = old.namespace_id;
END;
CREATE TRIGGER usage_of_changed_container AFTER UPDATE OF stored_bytes, namespace_id ON containers BEGIN
    UPDATE namespace_usage SET stored_bytes = stored_bytes - old.stored_bytes WHERE namespace_id = old.namespace_id;
    UPDATE namespace_usage SET stored_bytes = stored_bytes + new.stored_bytes WHERE namespace_id = new.namespace_id;
END;

CREATE TRIGGER usage_of_new_vm AFTER INSERT ON vms BEGIN
    UPDATE namespace_usage SET vms = vms + 1 WHERE namespace_id = new.namespace_id;
END;
CREATE TRIGGER usage_of_removed_vm AFTER DELETE ON vms BEGIN
    UPDATE namespace_usage SET vms = vms - 1 WHERE namespace_id = old.namespace_id;
END;
CREATE TRIGGER usage_of_new_job AFTER INSERT ON jobs BEGIN
    UPDATE namespace_usage SET jobs = jobs + 1 WHERE namespace_id = new.namespace_id;
END;
CREATE TRIGGER usage_of_removed_job AFTER DELETE ON jobs BEGIN
    UPDATE namespace_usage SET jobs = jobs - 1 WHERE namespace_id = old.namespace_id;
END;

-- A restore point that becomes its VM's newest takes the place of the one before; its own disks are added as they are
-- written.
CREATE TRIGGER usage_of_new_backup AFTER INSERT ON backups BEGIN
    UPDATE namespace_usage SET restore_points = restore_points + 1 WHERE namespace_id = new.namespace_id;
    UPDATE namespace_usage SET protected_bytes = protected_bytes -
            (SELECT coalesce(sum(k.data_bytes), 0) FROM disks k WHERE k.backup_id =
                (SELECT b.id FROM backups b WHERE b.vm_id = new.vm_id AND b.ordinal < new.ordinal
                    ORDER BY b.ordinal DESC LIMIT 1))
        WHERE namespace_id = new.namespace_id
            AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.vm_id = new.vm_id AND b.ordinal > new.ordinal);
END;
CREATE TRIGGER usage_of_new_disk AFTER INSERT ON disks BEGIN
    UPDATE namespace_usage SET protected_bytes = protected_bytes + new.data_bytes
        WHERE namespace_id = (SELECT b.namespace_id FROM backups b WHERE b.id = new.backup_id
            AND NOT EXISTS (SELECT 1 FROM backups l WHERE l.vm_id = b.vm_id AND l.ordinal > b.ordinal));
END;
-- Before, because the restore point's disks go with it.
CREATE TRIGGER usage_of_removed_backup BEFORE DELETE ON backups BEGIN
    UPDATE namespace_usage SET restore_points = restore_points - 1 WHERE namespace_id = old.namespace_id;
    UPDATE namespace_usage SET protected_bytes = protected_bytes
            - (SELECT coalesce(sum(k.data_bytes), 0) FROM disks k WHERE k.backup_id = old.id)
            + (SELECT coalesce(sum(k.data_bytes), 0) FROM disks k WHERE k.backup_id =
                (SELECT b.id FROM backups b WHERE b.vm_id = old.vm_id AND b.ordinal < old.ordinal
                    ORDER BY b.ordinal DESC LIMIT 1))
        WHERE namespace_id = old.namespace_id
            AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.vm_id = old.vm_id AND b.ordinal > old.ordinal);
END;

-- An entry of the audit log may stand for several events of one kind, by one actor, on one object: at_ms is the first,
-- last_ms the last (null: there was one), repeat_key what makes them the same (null: it always stands alone).
ALTER TABLE audit ADD COLUMN count INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1);
ALTER TABLE audit ADD COLUMN last_ms INTEGER;
ALTER TABLE audit ADD COLUMN repeat_key TEXT;
CREATE INDEX audit_repeats ON audit (action, who, at_ms) WHERE repeat_key IS NOT NULL;

-- Compression details of attempts that made no restore point, by VM, to keep their number bounded.
CREATE INDEX details_without_backup ON details (vm_id, started_ms, session_id, position) WHERE status <> 'done';
-- Rows of details that stand for several: how many.
CREATE TABLE merged_details (
    session_id BLOB    NOT NULL CHECK (length(session_id) = 16),
    position   INTEGER NOT NULL CHECK (position >= 0),
    rows       INTEGER NOT NULL CHECK (rows >= 2),
    PRIMARY KEY (session_id, position)
) STRICT, WITHOUT ROWID;
