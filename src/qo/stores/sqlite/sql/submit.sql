-- Insert a batch of new tasks. {rows}: one parenthesised list of parameters a task.
-- Invariant: an existing task is never touched; the unique index on id refuses it.
INSERT INTO qo_tasks (
    id, queue, type, requires, state, ready, priority, rank, created_at, scheduled_at, available_at, updated_at,
    max_retries, timeout, retry, key, key_until, tags, trace, unsaid, version, input
)
VALUES {rows}
