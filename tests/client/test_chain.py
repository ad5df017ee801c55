"""The chainable form, inside an event loop and outside."""

import asyncio
import gc
from typing import Any

import pytest
from tests.client.conftest import MakeQueue

from qo import ConfigError, InvalidInput, Queue


def crawl(input: dict[str, Any]) -> str:
    return input["url"]


def test_without_a_loop_add_is_durable(make: MakeQueue) -> None:
    """Each add is stored when it returns; what was set holds for the type."""
    q = make()
    chain = (
        q("crawl")
        .set_worker(crawl)
        .set_worker_count(3)
        .set_rate_limit(10)
        .set_timeout(300)
        .set_max_attempts(3)
        .add({"url": "a"})
        .add({"url": "b"}, priority="high")
    )
    other = make()
    assert [task.input["url"] for task in other.sync.find(sort="oldest").tasks] == ["a", "b"]
    assert [handle.task.max_retries for handle in chain.handles] == [2, 2]
    assert [handle.task.priority for handle in chain.handles] == ["medium", "high"]
    handler = q.registry.get("crawl")
    assert handler.whole
    assert (handler.options.concurrency, handler.options.rate_limit, handler.options.timeout) == (3, 10.0, 300.0)
    for queue in (q, other):
        queue.sync.close()


async def test_inside_a_loop_it_collects(q: Queue) -> None:
    """Nothing is stored before the chain is awaited; awaiting stores all and answers with the handles."""
    chain = q("crawl").set_timeout(5).add({"url": "a"}).add({"url": "b"})
    assert (await q.stats()).pending == 0
    handles = await chain
    assert [handle.task.input["url"] for handle in handles] == ["a", "b"]
    assert chain.handles == handles
    assert await chain == []
    assert [handle.task.timeout for handle in await q("crawl").add()] == [5.0]


async def test_forgetting_to_await_is_told(q: Queue) -> None:
    """A chain that dies with tasks nobody stored warns."""
    with pytest.warns(RuntimeWarning, match="2 'crawl' tasks were added in an event loop but never stored"):
        q("crawl").add().add()
        gc.collect()


async def test_what_is_set_holds_before_and_after_the_worker(q: Queue) -> None:
    """The order of the links does not matter, and other chains of the type see it."""
    q("a").set_max_retries(1).set_worker(crawl)
    q("b").set_worker(lambda x: x).set_max_retries(1).set_priority("low").set_retry("d")
    for name in ("a", "b"):
        assert q.registry.get(name).options.max_retries == 1
        assert (await q(name).add({}))[0].task.max_retries == 1

    @q.task(max_retries=7, timeout=9)
    def typed(x: int) -> None: ...

    q("typed").set_max_attempts(1)
    task = (await typed.submit(1)).task
    assert (task.max_retries, task.timeout) == (0, 9.0)


async def test_mistakes_are_told_at_once(q: Queue) -> None:
    """Wrong numbers, wrong inputs and handlers that cannot take an input whole."""
    with pytest.raises(ConfigError):
        q("x").set_max_attempts(0)
    with pytest.raises(ConfigError):
        q("x").set_worker_count(0)
    with pytest.raises(ConfigError, match="gets its input whole"):
        q("x").set_worker(lambda: None)
    with pytest.raises(InvalidInput):
        q("")

    def whole(n: int) -> None: ...

    with pytest.raises(InvalidInput):
        q("n").set_worker(whole).add("no number")
    assert (await q.stats()).pending == 0


async def test_pausing_one_type(q: Queue) -> None:
    """pause and resume of a chain are those of its type."""
    assert (await q("a").pause()).paused_types == frozenset({"a"})
    assert (await q("a").resume()).paused_types == frozenset()


async def test_run_once(q: Queue) -> None:
    """What waits of this type is run here and now."""
    chain = q("crawl").set_worker(crawl)
    await q("other").set_worker(crawl).add({"url": "x"})
    first, second = await chain.add({"url": "a"}).add({"url": "b"})
    assert await chain.run_once() == 2
    assert (await first.result(), await second.result()) == ("a", "b")
    assert (await q.stats()).pending == 1
    assert await asyncio.wait_for(q.run_once(), 10) == 1
