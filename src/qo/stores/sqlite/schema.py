"""Creating and migrating the tables.

Runs inside the writer's first transaction, so many processes may start at once.
"""

import sqlite3

from qo.errors import SchemaMismatch
from qo.stores.sqlite.text import sql

VERSION = 1
"""One file sql/schema_N.sql for each version; a new file is all a migration takes."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to this version, or refuse one that a newer qo wrote."""
    found = stored_version(connection)
    if found > VERSION:
        raise SchemaMismatch(f"this file has schema {found}, this qo knows up to {VERSION}: upgrade qo on this machine")
    for number in range(found + 1, VERSION + 1):
        for statement in sql(f"schema_{number}").split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO qo_meta (name, value) VALUES ('schema', ?)", (str(number),))


def stored_version(connection: sqlite3.Connection) -> int:
    """The version of the file; 0 when qo was never here."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'qo_meta'").fetchone():
        return 0
    row = connection.execute("SELECT value FROM qo_meta WHERE name = 'schema'").fetchone()
    return int(row[0]) if row else 0
