-- A line of history for each settled task. {rows}: (id, lease id).
INSERT INTO qo_history (task, version, at, was, became, attempt, lease_id, worker_id, error)
SELECT pk, version, updated_at, 'running', state, attempt, item.column2, worker_id, error
FROM (VALUES {rows}) AS item JOIN qo_tasks ON qo_tasks.id = item.column1
