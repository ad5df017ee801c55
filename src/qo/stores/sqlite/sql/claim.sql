-- Lease the tasks that {tasks} names by their keys: started_at, updated_at, lease_id, lease_expires_at, worker_id.
UPDATE qo_tasks SET
    state = 'running', ready = 0, attempt = attempt + 1, started_at = ?, updated_at = ?,
    lease_id = ?, lease_expires_at = ?, worker_id = ?, version = version + 1
WHERE pk IN ({tasks})
