"""Several processes on one file: all can open it at once, and all get their turn."""

from pathlib import Path

from tests.stores.processes import Child, children
from tests.stores.tools import check_file, rows

OPENERS = 8


def test_many_processes_open_an_empty_file_at_once(tmp_path: Path) -> None:
    """Whoever comes first creates the tables; everybody succeeds."""
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        with children(*(Child("open_and_submit", path) for _ in range(OPENERS))) as openers:
            for child in openers:
                assert child.line() == "ready"
            for child in openers:
                child.tell()
            ids = {child.line() for child in openers}
            assert [child.end() for child in openers] == [0] * OPENERS
        assert {id for (id,) in rows(path, "SELECT id FROM qo_tasks")} == ids
        assert rows(path, "SELECT value FROM qo_meta WHERE name = 'schema'") == [("1",)]
        check_file(path)


def test_busy_writers_do_not_starve_a_third(tmp_path: Path) -> None:
    """While two processes write without a pause, few of their transactions come between a third's ask and its turn.

    Each transaction is one row, so that the distance of two keys counts transactions, however slow the machine is.
    """
    path = tmp_path / "qo.db"
    with children(
        Child("submit_one_by_one", path, "busy", 0),
        Child("submit_one_by_one", path, "busy", 0),
        Child("submit_one_by_one", path, "third", 100),
    ) as (*busy, third):
        for child in (*busy, third):
            assert child.line() == "ready"
        for child in busy:
            child.tell()
        while rows(path, "SELECT count(*) FROM qo_tasks")[0][0] < 100:
            pass  # until both are at full speed
        third.tell()
        overtaken = sorted(int(third.line()) for _ in range(100))
    # Measured: median 1 to 3, worst about 20; without turns the worst were thousands.
    assert overtaken[50] <= 10
    assert overtaken[-1] <= 300
