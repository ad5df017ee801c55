-- End attempts of tasks that will run again; otherwise as settle. {rows}: the same eight, then ready, available_at,
-- scheduled_at, rank.
UPDATE qo_tasks SET
    state = item.column2, failures = item.column3, losses = item.column4, error = item.column5, output = item.column6,
    completed_at = NULL, updated_at = item.column7, settled_lease = item.column8,
    ready = item.column9, available_at = item.column10, scheduled_at = item.column11, rank = item.column12,
    lease_id = NULL, lease_expires_at = NULL, version = version + 1
FROM (VALUES {rows}) AS item WHERE pk = item.column1
