-- Whole rows as one JSON text, :pks a JSON array.
SELECT json_group_array(json_array({columns})) FROM qo_tasks WHERE pk IN (SELECT value FROM json_each(:pks))
