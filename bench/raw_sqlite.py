"""The engine's own limit: the least a queue on SQLite can do, by hand, in one thread, without history or results."""

import os
import sqlite3
import time
from pathlib import Path


def raw_rate(path: Path, count: int, batch: int) -> float:
    """Tasks a second through submit + claim + settle in batches."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, rank INTEGER, lease TEXT, input TEXT)")
    connection.execute("CREATE INDEX ready ON jobs (rank) WHERE state = 'pending'")
    ids = [os.urandom(16).hex() for _ in range(count)]
    start = time.perf_counter()
    for first in range(0, count, batch):
        some = ids[first : first + batch]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO jobs VALUES (?, 'pending', ?, NULL, '{}')", [(id, first) for id in some])
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT id FROM jobs WHERE state = 'pending' ORDER BY rank LIMIT ?", (batch,)
        ).fetchall()
        connection.executemany("UPDATE jobs SET state = 'running', lease = 'me' WHERE id = ?", rows)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE jobs SET state = 'done' WHERE id = ? AND lease = 'me'", rows)
        connection.execute("COMMIT")
    rate = count / (time.perf_counter() - start)
    connection.close()
    return rate
