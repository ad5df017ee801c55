-- Add to one counter: queue, type, priority, state, difference.
INSERT INTO qo_counts (queue, type, priority, state, n) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (queue, type, priority, state) DO UPDATE SET n = n + excluded.n
