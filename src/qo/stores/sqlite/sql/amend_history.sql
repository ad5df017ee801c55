INSERT INTO qo_history (task, version, at, was, became, attempt, lease_id, worker_id, actor)
SELECT pk, version, updated_at, :was, state, attempt, lease_id, iif(lease_id IS NULL, NULL, worker_id), :actor
FROM qo_tasks WHERE id = :id
