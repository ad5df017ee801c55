-- Tasks by id, :ids a JSON array. Index: qo_tasks_id.
SELECT json_group_array(json_array({columns})) FROM qo_tasks WHERE id IN (SELECT value FROM json_each(:ids))
