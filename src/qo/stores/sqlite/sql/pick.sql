-- The next tasks of several lanes by rank. {lanes}: one SELECT a lane, joined by UNION ALL; SQLite merges them as they are
-- read, so that it costs one seek a lane and one step a task, never a sort (200 lanes: 1 ms).
SELECT json_group_array(json_array(rank, id, pk, type)) FROM ({lanes} ORDER BY 1, 2 LIMIT ?)
