-- A line of history for each settled task.
INSERT INTO qo_history (task, version, at, was, became, attempt, lease_id, worker_id, error)
SELECT column1, column2, column3, 'running', column4, column5, column6, column7, column8 FROM (VALUES {rows})
