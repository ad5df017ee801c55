-- Running tasks whose lease ran out, the longest ago first. Index: qo_tasks_expiry.
SELECT json_group_array(json_array({columns})) FROM (
    SELECT * FROM qo_tasks INDEXED BY qo_tasks_expiry
    WHERE lease_expires_at <= :now ORDER BY lease_expires_at, id LIMIT :limit)
