-- The keys of everything a lease holds. Index: qo_tasks_lease.
SELECT json_group_array(pk) FROM qo_tasks WHERE lease_id = ?
