-- End attempts. {rows}: id, lease id, attempt, cancel_requested as the sender knew it, expired, state, ready, available_at,
-- scheduled_at, rank, failures, losses, error, output, completed_at, updated_at. The last parameter is now.
-- Guards: changes.judge_settlement. An expiry leaves settled_lease alone, so that the old holder is told "lost".
UPDATE qo_tasks SET
    state = item.column6, ready = item.column7, available_at = item.column8, scheduled_at = item.column9,
    rank = item.column10, failures = item.column11, losses = item.column12, error = item.column13,
    output = item.column14, completed_at = item.column15, updated_at = item.column16,
    settled_lease = iif(item.column5, qo_tasks.settled_lease, qo_tasks.lease_id),
    lease_id = NULL, lease_expires_at = NULL, version = version + 1
FROM (VALUES {rows}) AS item
WHERE qo_tasks.id = item.column1 AND qo_tasks.lease_id = item.column2 AND qo_tasks.attempt = item.column3
    AND qo_tasks.cancel_requested = item.column4 AND (NOT item.column5 OR qo_tasks.lease_expires_at <= ?)
