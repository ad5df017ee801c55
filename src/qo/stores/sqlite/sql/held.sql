-- Everything a lease holds, for a claim that is repeated after a lost reply and for the answer of a fresh one.
-- One JSON text instead of rows: each row fetched would give up and take back Python's lock. Index: qo_tasks_lease.
SELECT json_group_array(json_array({columns})) FROM qo_tasks WHERE lease_id = :lease_id
