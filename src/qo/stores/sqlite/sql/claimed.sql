-- What the lease holds by kind, for the counters. Index: qo_tasks_lease.
SELECT queue, type, priority, count(*) FROM qo_tasks WHERE lease_id = :lease_id GROUP BY 1, 2, 3
