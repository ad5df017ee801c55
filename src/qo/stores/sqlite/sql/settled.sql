-- What was just settled, by kind and new state, for the counters. {rows}: (id).
SELECT queue, type, priority, state, count(*)
FROM (VALUES {rows}) AS item JOIN qo_tasks ON qo_tasks.id = item.column1 GROUP BY 1, 2, 3, 4
