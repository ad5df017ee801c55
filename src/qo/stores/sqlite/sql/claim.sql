-- Lease the tasks :pks (a JSON array of keys that pick.sql found in this same transaction).
UPDATE qo_tasks SET
    state = 'running', ready = 0, attempt = attempt + 1, started_at = :now, updated_at = :now,
    lease_id = :lease_id, lease_expires_at = :expires_at, worker_id = :worker_id, version = version + 1
WHERE pk IN (SELECT value FROM json_each(:pks))
