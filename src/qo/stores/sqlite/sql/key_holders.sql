-- Which of these (queue, key) pairs, :pairs as JSON, are held at :now, and by which task.
-- A key whose task is gone, or whose window has passed, is free.
SELECT k.queue, k.key, k.task_id
FROM json_each(:pairs) AS wanted
JOIN qo_keys AS k ON k.queue = wanted.value ->> 0 AND k.key = wanted.value ->> 1
JOIN qo_tasks AS t ON t.id = k.task_id
WHERE k.until > :now
