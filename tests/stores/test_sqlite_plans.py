"""The plan of every hot statement: it uses the index it was written for, and neither scans nor sorts the tasks.

A guard: whoever changes a statement or an index and loses the plan hears of it here, not from a slow queue.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.tools import on_writer, opened, task

from qo.stores.sqlite.claiming import _DELAYED, _READY
from qo.stores.sqlite.rows import COLUMNS, PUT_BACK_WIDTH, SETTLE_WIDTH
from qo.stores.sqlite.text import sql, sql_rows

ID, READY, DELAYED = "qo_tasks_id", "qo_tasks_ready", "qo_tasks_delayed"
LEASE, PK = "qo_tasks_lease", "INTEGER PRIMARY KEY"

LANES = " UNION ALL ".join([sql("pick_lane")] * 3)
HOT: dict[str, tuple[str, set[str]]] = {
    "lanes of the ready": (sql("lanes", **_READY), {READY}),
    "lanes of the delayed": (sql("lanes", **_DELAYED), {DELAYED}),
    "lanes of types of the ready": (sql("lanes_of_types", **_READY), {READY}),
    "lanes of types of the delayed": (sql("lanes_of_types", **_DELAYED), {DELAYED}),
    "pick": (sql("pick", lanes=LANES), {READY}),
    "promote": (sql("promote"), {DELAYED, PK}),
    "due": (sql("due"), {DELAYED}),
    "claim": (sql("claim", tasks=f"SELECT pk FROM ({LANES} ORDER BY 1, 2 LIMIT ?)"), {PK, READY}),
    "held": (sql("held"), {LEASE}),
    "history": (sql("history"), {ID}),
    "rows": (sql("rows", columns=COLUMNS), {PK}),
    "get": (sql("get", columns=COLUMNS), {ID, PK}),
    "guards": (sql("guards"), {ID}),
    "settle": (sql_rows("settle", SETTLE_WIDTH, 8), {PK}),
    "put_back": (sql_rows("put_back", PUT_BACK_WIDTH, 8), {PK}),
    "renew": (sql_rows("renew", 2, 8), {PK}),
    "expired": (sql("expired", columns=COLUMNS), {LEASE, PK}),
    "key_holders": (sql("key_holders"), {ID}),
    "submit_history": (sql("submit_history"), {PK}),
    "amend": (sql("amend"), {ID}),
    "amend_history": (sql("amend_history"), {ID}),
}
# Sorts of a handful: the tasks whose leases ran out.
SMALL_SORTS = {
    "expired": "USE TEMP B-TREE FOR ORDER BY",
}


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The steps SQLite takes. Parameters do not matter to it, so none are given."""
    count = statement.count("?")
    names = dict.fromkeys(_names(statement))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", names or [None] * count).fetchall()
    return [detail for *_, detail in rows]


def _names(statement: str) -> Iterator[str]:
    for part in statement.split(":")[1:]:
        name = ""
        for letter in part:
            if not (letter.isalnum() or letter == "_"):
                break
            name += letter
        if name:
            yield name


@pytest.fixture(params=["empty", "analyzed"])
async def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file as it is made, and one whose application ran ANALYZE over few tasks, which changes SQLite's mind."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        if request.param == "analyzed":
            await store.submit([task(f"t{n % 3}", delay=n % 2 * 60.0) for n in range(20)])
            await on_writer(store, lambda c: c.execute("ANALYZE"))
    return path


@pytest.mark.parametrize("name", HOT)
def test_hot_statement_uses_its_index(file: Path, name: str) -> None:
    """It searches the tasks by the index meant for it, and never goes through them all or sorts them."""
    statement, indexes = HOT[name]
    connection = sqlite3.connect(file)
    try:
        steps = plan(connection, statement)
    finally:
        connection.close()
    about_tasks = [step for step in steps if ("qo_tasks" in step or " t " in step) and "VIRTUAL TABLE" not in step]
    assert about_tasks, steps
    scans = [step for step in about_tasks if step.startswith("SCAN")]
    assert not scans, steps
    for step in about_tasks:
        assert any(index in step for index in indexes), steps
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    allowed = SMALL_SORTS.get(name)
    assert all(allowed is not None and step.startswith(allowed) for step in sorts), steps


def test_every_statement_file_is_looked_at() -> None:
    """A new SQL file joins the table above, or the list of inserts, parts and variants."""
    folder = Path(sql.__wrapped__.__code__.co_filename).parent / "sql"
    not_queries = {"schema_1", "count", "submit", "settle_history", "pick_lane", "lanes", "lanes_of_types"}
    assert {path.stem for path in folder.glob("*.sql")} - not_queries == {
        name for name in HOT if not name.startswith("lanes")
    }
