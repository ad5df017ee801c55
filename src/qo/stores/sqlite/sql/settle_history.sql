-- A row of history for each attempt that ended. {rows}: task, version, claimed_at, at, new state, attempt, lease, worker,
-- error.
INSERT INTO qo_history (task, version, claimed_at, at, was, became, attempt, lease_id, worker_id, error)
SELECT column1, column2, column3, column4, 'running', column5, column6, column7, column8, column9 FROM (VALUES {rows})
