-- Let leases run out later. {rows}: (pk, progress or NULL), of leases judged to be held in this same transaction.
-- The version stays: nothing that an amendment writes is touched.
UPDATE qo_tasks SET lease_expires_at = ?, progress = coalesce(item.column2, progress)
FROM (VALUES {rows}) AS item WHERE pk = item.column1
