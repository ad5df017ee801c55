-- End attempts whose guards were judged in this same transaction. {rows}: pk, state, ready, available_at, scheduled_at,
-- rank, failures, losses, error, output, completed_at, updated_at, settled_lease.
UPDATE qo_tasks SET
    state = item.column2, ready = item.column3, available_at = item.column4, scheduled_at = item.column5,
    rank = item.column6, failures = item.column7, losses = item.column8, error = item.column9,
    output = item.column10, completed_at = item.column11, updated_at = item.column12, settled_lease = item.column13,
    lease_id = NULL, lease_expires_at = NULL, version = version + 1
FROM (VALUES {rows}) AS item WHERE pk = item.column1
