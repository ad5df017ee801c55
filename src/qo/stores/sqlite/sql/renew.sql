-- Let leases run out later. {rows}: (id, lease id, attempt, progress or NULL). A lease that ran out but was not
-- collected is still held, so its expiry is not looked at. The version stays: an amendment touches none of this. Index: qo_tasks_id; the lease is the fence.
UPDATE qo_tasks SET
    lease_expires_at = ?, progress = coalesce(item.column4, progress)
FROM (VALUES {rows}) AS item
WHERE qo_tasks.id = item.column1 AND qo_tasks.lease_id = item.column2 AND qo_tasks.attempt = item.column3
