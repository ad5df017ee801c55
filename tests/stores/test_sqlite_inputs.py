"""Large inputs stand aside in qo_inputs, and everything works with them as with small ones."""

from pathlib import Path

from tests.stores.tools import check_file, completed, lease, on_writer, opened, rows, task, want

from qo import lifecycle
from qo.clock import SYSTEM
from qo.outcomes import GivenBack
from qo.stores.protocol import Filter
from qo.stores.sqlite.rows import LARGE
from qo.task import Task

MEBIBYTE = 1024 * 1024


def log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_life_of_a_large_input(tmp_path: Path) -> None:
    """1 MiB survives submit, claim, renew, give-back, settle, search, replay and archive, and goes with a purge."""
    path = tmp_path / "qo.db"
    text = "needle" + "ä" * (MEBIBYTE // 2)
    async with opened(path) as store:
        one = task("large", input={"text": text})
        await store.submit([one, task("large", input="y" * (LARGE + 1)), task(input="z" * (LARGE - 2))])
        assert rows(path, "SELECT count(*), sum(input IS NULL) FROM qo_tasks") == [(3, 2)]
        assert rows(path, "SELECT count(*) FROM qo_inputs") == [(2,)]
        (held,) = (await store.claim(want(1))).tasks
        assert held.id == one.id and held.input == {"text": text}
        assert await store.renew([lease(held, {"done": 1})], 60) == ["held"]
        assert await store.settle([lifecycle.settle(held, GivenBack(), SYSTEM.now(), 0.5)]) == ["written"]
        (held,) = (await store.claim(want(1))).tasks
        assert held.input == {"text": text} and held.progress == {"done": 1}
        assert await store.settle([completed(held, "x" * MEBIBYTE)]) == ["written"]
        (done,) = (await store.find(Filter(text="NEEDLEä"))).tasks
        assert (done.input, len(done.output)) == ({"text": text}, MEBIBYTE)
        assert [line.became for line in await store.history(one.id)] == [
            "pending", "running", "pending", "running", "completed",
        ]  # fmt: skip
        archived = lifecycle.archive(done, SYSTEM.now())
        assert archived is not None and await store.amend([archived]) == ["written"]
        (stored,) = await store.get([one.id])
        assert isinstance(stored, Task) and stored.input == {"text": text}
        check_file(path)
        assert await store.purge(Filter(states=("archived",)), 10) == 1
        assert rows(path, "SELECT count(*), max(length(input)) FROM qo_inputs") == [(1, LARGE + 3)]
    check_file(path)


async def test_renew_does_not_write_or_read_a_large_input(tmp_path: Path) -> None:
    """A renewal touches a few pages, not the hundreds that the input takes."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task(input="x" * MEBIBYTE)])
        (held,) = (await store.claim(want(1))).tasks
        await on_writer(store, lambda c: c.execute("PRAGMA wal_autocheckpoint = 0").fetchone())
        before = log_size(path)
        read: list[str] = []

        def listen(statement: str) -> None:
            if "qo_inputs" in statement:
                read.append(statement)

        await on_writer(store, lambda c: c.set_trace_callback(listen))
        for _ in range(10):
            assert await store.renew([lease(held)], 60) == ["held"]
        assert log_size(path) - before < 10 * 20 * 4096
        assert read == []


async def test_repeated_submit_of_a_large_input(tmp_path: Path) -> None:
    """A repeat keeps one copy and answers with the whole task."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        one = task(input="x" * 5000)
        await store.submit([one])
        (answer,) = await store.submit([one])
        assert rows(path, "SELECT count(*) FROM qo_inputs") == [(1,)]
        assert not isinstance(answer, Exception) and (answer.outcome, answer.task.input) == ("id_exists", "x" * 5000)


async def test_key_of_purged_row_is_not_mixed_up(tmp_path: Path) -> None:
    """SQLite gives the number of a deleted row to the next: nothing of the old task clings to the new one."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        for text in ("a", "b"):
            (answer,) = await store.submit([task(input=text * 5000, key="k")])
            assert not isinstance(answer, Exception) and answer.outcome == "created"
            (held,) = (await store.claim(want(1))).tasks
            assert held.input == text * 5000
            assert len(await store.history(held.id)) == 2
            await store.settle([completed(held)])
            assert rows(path, "SELECT pk FROM qo_tasks") == [(1,)]
            assert await store.purge(Filter(), 10) == 1
        assert rows(path, "SELECT count(*) FROM qo_inputs UNION ALL SELECT count(*) FROM qo_keys") == [(0,), (0,)]


async def test_two_renewals_of_one_lease_in_a_batch(tmp_path: Path) -> None:
    """Progress that comes together with a plain renewal, before or behind it, is kept; of two the later one."""
    async with opened(tmp_path / "qo.db") as store:
        await store.submit([task()])
        (held,) = (await store.claim(want(1))).tasks
        for renewals, progress in (
            ([lease(held, 1), lease(held)], 1),
            ([lease(held), lease(held, 2)], 2),
            ([lease(held, 3), lease(held, 4), lease(held)], 4),
        ):
            assert await store.renew(renewals, 60) == ["held"] * len(renewals)
            (stored,) = await store.get([held.id])
            assert isinstance(stored, Task) and stored.progress == progress
