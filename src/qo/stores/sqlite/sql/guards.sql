-- What the guards of settle and renew look at, :ids a JSON array. Never the whole record: it may be unreadable or large.
SELECT json_group_array(json_array(id, state, lease_id, attempt, cancel_requested, settled_lease, lease_expires_at))
FROM qo_tasks WHERE id IN (SELECT value FROM json_each(:ids))
