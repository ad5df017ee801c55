"""The SQLite store keeps the contract."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from qo.clock import SYSTEM, ManualClock
from qo.stores.protocol import Store
from qo.stores.sqlite.store import SqliteStore
from qo.testing.conformance import Harness, Opener, conformance, model_test


class SqliteHarness(Harness):
    """Each place is a file in a folder of its own."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Opener]:
        with TemporaryDirectory() as folder:
            yield lambda: SqliteStore(Path(folder, "qo.db"), clock=self.clock or SYSTEM)

    async def corrupt(self, store: Store, task_id: str) -> bool:
        assert isinstance(store, SqliteStore)
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute("UPDATE qo_tasks SET retry = '{' WHERE id = ?", (task_id,))
        return True


test_conformance = conformance(SqliteHarness())
test_model = model_test(SqliteHarness(ManualClock()))
