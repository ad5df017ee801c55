SELECT rank, id, pk, type FROM qo_tasks INDEXED BY qo_tasks_ready WHERE ready = 1 AND queue = ? AND type = ? AND requires = ?
