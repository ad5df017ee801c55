-- End attempts of tasks that are over; their guards were judged in this same transaction. {rows}: pk, state, failures,
-- losses, error, output, time of the end, settled_lease. Their place in the order stays as it is.
UPDATE qo_tasks SET
    state = item.column2, failures = item.column3, losses = item.column4, error = item.column5, output = item.column6,
    completed_at = item.column7, updated_at = item.column7, settled_lease = item.column8,
    lease_id = NULL, lease_expires_at = NULL, version = version + 1
FROM (VALUES {rows}) AS item WHERE pk = item.column1
