-- The live lanes among :queues x :types (JSON arrays). {index}, {live}: qo_tasks_ready or qo_tasks_delayed and what it is
-- partial on. A loose scan: one seek a lane, however many tasks stand in it or in the lanes between.
WITH RECURSIVE lane (queue, type, requires) AS (
    SELECT q.value, t.value, (
        SELECT min(requires) FROM qo_tasks INDEXED BY {index}
        WHERE {live} AND queue = q.value AND type = t.value)
    FROM json_each(:queues) AS q, json_each(:types) AS t
    UNION ALL
    SELECT queue, type, (
        SELECT min(requires) FROM qo_tasks INDEXED BY {index}
        WHERE {live} AND queue = lane.queue AND type = lane.type AND requires > lane.requires)
    FROM lane WHERE requires IS NOT NULL
)
SELECT json_group_array(json_array(queue, type, requires)) FROM lane WHERE requires IS NOT NULL
