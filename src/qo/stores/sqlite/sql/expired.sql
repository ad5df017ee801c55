-- Running tasks whose lease ran out, the longest ago first. Goes through qo_tasks_lease, which has what it looks at.
SELECT json_group_array(json_array({columns})) FROM (
    SELECT * FROM qo_tasks INDEXED BY qo_tasks_lease
    WHERE lease_id IS NOT NULL AND lease_expires_at <= :now ORDER BY lease_expires_at, id LIMIT :limit)
