-- What the guards of renew and settle look at, and what history and counters need, :ids a JSON array.
-- Never the whole record: it may be unreadable or large. Index: qo_tasks_id.
SELECT json_group_array(json_array(
    pk, id, state, lease_id, attempt, cancel_requested, settled_lease, lease_expires_at,
    queue, type, priority, version, worker_id, started_at))
FROM qo_tasks WHERE id IN (SELECT value FROM json_each(:ids))
