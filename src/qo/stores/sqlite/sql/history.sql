-- The history of task :id in the order of writing, and at its end the claim of an attempt that runs now.
SELECT claimed_at, at, was, became, h.attempt, h.lease_id, h.worker_id, actor, h.error
FROM qo_tasks AS t JOIN qo_history AS h ON h.task = t.pk WHERE t.id = :id
UNION ALL
SELECT started_at, updated_at, NULL, NULL, attempt, lease_id, worker_id, NULL, NULL
FROM qo_tasks WHERE id = :id AND lease_id IS NOT NULL
