"""A worker in the background of this process: q.start() and q.stop()."""

import threading

import pytest
from tests.client.conftest import MakeQueue

from qo import ConfigError, Queue, UnknownType, UsageError


def test_start_works_and_stop_drains(make: MakeQueue) -> None:
    """Tasks run while the program goes on; stop waits for what runs and nothing is left running."""
    q = make()
    started, go = threading.Event(), threading.Event()

    @q.task
    def double(x: int) -> int:
        return 2 * x

    @q.task
    def slow() -> str:
        started.set()
        assert go.wait(30)
        return "done"

    q.start(concurrency=4)
    try:
        with pytest.raises(UsageError, match="runs already"):
            q.start()
        assert q.sync.result(double.submit_sync(4), timeout=30) == 8
        handle = slow.submit_sync()
        assert started.wait(30)
        stopping = threading.Thread(target=q.stop)
        stopping.start()
        go.set()
        stopping.join(30)
        assert not stopping.is_alive()
        assert q.sync.get(handle.id).output == "done"
        assert sum(thread.name == "qo-worker" for thread in threading.enumerate()) == 0
    finally:
        go.set()
        q.stop()
        q.sync.close()


def test_a_chain_starts_it(make: MakeQueue) -> None:
    """The example of the README: set a worker, add, start, stop."""
    q = make()
    seen: list[object] = []
    done = threading.Event()

    def crawl(input: dict[str, str]) -> None:
        seen.append(input["url"])
        if len(seen) == 2:
            done.set()

    chain = q("crawl").set_worker(crawl).set_worker_count(1).add({"url": "a"}).add({"url": "b"}).start()
    assert done.wait(30)
    chain.stop()
    assert seen == ["a", "b"]
    assert q.sync.stats().completed == 2
    q.stop()
    q.sync.close()


def test_what_ends_it_is_raised_by_stop() -> None:
    """A worker that cannot run says why: at start where it can be known, else at stop."""
    q = Queue("memory://")
    with pytest.raises(ConfigError, match="nothing to run"):
        q.start()

    @q.task
    def work() -> None: ...

    q.start(types=["wrok"])
    with pytest.raises(UnknownType, match="did you mean work"):
        q.stop()
    q.stop()
