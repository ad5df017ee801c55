-- The first line of history of every task inserted after :first.
INSERT INTO qo_history (task, version, at, was, became, attempt)
SELECT pk, version, updated_at, NULL, state, 0 FROM qo_tasks WHERE pk > :first
