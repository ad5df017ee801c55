-- Move due tasks of one lane into the ready index, at most :most, the longest due first. Index: qo_tasks_delayed.
UPDATE qo_tasks SET ready = 1 WHERE pk IN (
    SELECT pk FROM qo_tasks INDEXED BY qo_tasks_delayed
    WHERE ready = 0 AND state = 'pending' AND queue = :queue AND type = :type AND requires = :requires
    AND available_at <= :now
    ORDER BY available_at LIMIT :most)
