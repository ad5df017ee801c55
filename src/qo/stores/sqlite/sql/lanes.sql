-- The live lanes in :queues (a JSON array), of any type; otherwise as lanes_of_types.
WITH RECURSIVE kind (queue, type) AS (
    SELECT q.value, (SELECT min(type) FROM qo_tasks INDEXED BY {index} WHERE {live} AND queue = q.value)
    FROM json_each(:queues) AS q
    UNION ALL
    SELECT queue, (
        SELECT min(type) FROM qo_tasks INDEXED BY {index} WHERE {live} AND queue = kind.queue AND type > kind.type)
    FROM kind WHERE type IS NOT NULL
),
lane (queue, type, requires) AS (
    SELECT queue, type, (
        SELECT min(requires) FROM qo_tasks INDEXED BY {index}
        WHERE {live} AND queue = kind.queue AND type = kind.type)
    FROM kind WHERE type IS NOT NULL
    UNION ALL
    SELECT queue, type, (
        SELECT min(requires) FROM qo_tasks INDEXED BY {index}
        WHERE {live} AND queue = lane.queue AND type = lane.type AND requires > lane.requires)
    FROM lane WHERE requires IS NOT NULL
)
SELECT json_group_array(json_array(queue, type, requires)) FROM lane WHERE requires IS NOT NULL
