-- A line of history for everything the lease holds. Index: qo_tasks_lease.
INSERT INTO qo_history (task, version, at, was, became, attempt, lease_id, worker_id)
SELECT pk, version, updated_at, 'pending', 'running', attempt, lease_id, worker_id FROM qo_tasks WHERE lease_id = :lease_id
