-- Change a task from outside, if its version is still the one the amendment was made from.
UPDATE qo_tasks SET
    state = :state, ready = :ready, cancel_requested = :cancel_requested, available_at = :available_at,
    scheduled_at = :scheduled_at, rank = :rank, failures = :failures, losses = :losses, completed_at = :completed_at,
    archived_from = :archived_from, error = :error, output = :output, updated_at = :at, version = version + 1
WHERE id = :id AND version = :version
