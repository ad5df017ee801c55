"""Opening a SQLite file, and what its errors mean to the caller."""

import sqlite3
from pathlib import Path
from typing import Literal

from qo.errors import ConfigError, Contention, InvalidInput, QoError, StoreError, Unavailable

Synchronous = Literal["NORMAL", "FULL"]
OLDEST = (3, 38, 0)


def connect(path: Path, synchronous: Synchronous, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in WAL mode without implicit transactions."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old, qo needs {'.'.join(map(str, OLDEST))} or newer")
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=512)
    try:
        if read_only:
            connection.execute("PRAGMA query_only = 1")
        else:
            connection.execute("PRAGMA journal_mode = WAL")
            # NORMAL: a commit survives the death of the process. FULL: also that of the machine, for one fsync a
            # commit.
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # Every 12 MB. At SQLite's 4 MB a claim and settle cost a sixth more; at 40 MB one submit in a hundred
            # waited for 130 ms while another process wrote the log back.
            connection.execute("PRAGMA wal_autocheckpoint = 3000")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def translated(error: BaseException) -> BaseException:
    """The error of the contract behind a driver's one, with the cause kept."""
    if isinstance(error, QoError):
        return error
    found: QoError
    text = str(error)
    if isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text):
        found = Contention(f"the SQLite file stayed locked by another program for 30 s: {text}")
    elif isinstance(error, (sqlite3.OperationalError, OSError)):
        found = Unavailable(f"the SQLite file cannot be used: {text}")
    elif isinstance(error, (sqlite3.DataError, OverflowError, UnicodeEncodeError)):
        found = InvalidInput(f"a value does not fit into SQLite: {text}")
    elif isinstance(error, sqlite3.DatabaseError):
        found = StoreError(f"the SQLite file is not usable as a queue: {text}")
    else:
        return error
    found.__cause__ = error
    return found
