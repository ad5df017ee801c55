-- When the first delayed task of each of :lanes (JSON arrays of queue, type, requires) may run. Index: qo_tasks_delayed.
SELECT json_group_array((
    SELECT min(available_at) FROM qo_tasks INDEXED BY qo_tasks_delayed
    WHERE ready = 0 AND state = 'pending'
    AND queue = lane.value ->> 0 AND type = lane.value ->> 1 AND requires = lane.value ->> 2))
FROM json_each(:lanes) AS lane
