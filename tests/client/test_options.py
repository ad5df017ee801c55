"""Who decides on an option: argument > task > type > priority level > queue > environment > default."""

from typing import Any

import pytest
from tests.client.conftest import MakeQueue

from qo import ConfigError, InvalidInput, Queue, RetryPolicy
from qo.settings import Settings

ENVIRONMENT = Settings.load({"QO_MAX_RETRIES": "11", "QO_TIMEOUT": "11s", "QO_KEY_WINDOW": "11s"})


def build(**said: Any) -> tuple[Queue, Any]:
    """A queue and a task function with what each step says."""
    q = Queue(
        "memory://",
        settings=ENVIRONMENT if said.get("environment") else Settings(),
        levels=said.get("levels"),
        **said.get("queue", {}),
    )

    def work() -> None: ...

    return q, q.task(**said.get("type", {}))(work)


TABLE: list[tuple[dict[str, Any], tuple[int, float | None]]] = [
    ({}, (3, 300.0)),
    ({"environment": True}, (11, 11.0)),
    ({"environment": True, "queue": {"max_retries": 7, "timeout": 7}}, (7, 7.0)),
    ({"queue": {"max_retries": 7, "timeout": 7}, "levels": "b"}, (3, 600.0)),
    ({"levels": "b", "type": {"priority": "high"}}, (5, 300.0)),
    ({"levels": "b", "queue": {"priority": "low"}}, (2, 900.0)),
    ({"levels": "b", "task": {"priority": -5}}, (2, 900.0)),
    ({"levels": "b", "type": {"max_retries": 6, "timeout": "6s"}}, (6, 6.0)),
    ({"type": {"max_retries": 6, "timeout": 6}, "queue": {"max_retries": 7}}, (6, 6.0)),
    ({"type": {"max_retries": 6, "timeout": 6}, "task": {"max_retries": 5, "timeout": None}}, (5, None)),
    ({"type": {"timeout": None}, "queue": {"timeout": 7}}, (3, None)),
    ({"type": {"max_retries": 6}, "task": {"key": "k"}}, (6, 300.0)),
]


@pytest.mark.parametrize(("said", "expected"), TABLE)
async def test_precedence(said: dict[str, Any], expected: tuple[int, float | None]) -> None:
    """The most specific step that says something wins, for typed and for named submits alike."""
    q, work = build(**said)
    async with q:
        bound = await work.options(**said.get("task", {})).submit()
        named = await q.submit("work", {}, **said.get("task", {}) | {"key": None})
        for handle in (bound, named):
            assert (handle.task.max_retries, handle.task.timeout) == expected


async def test_other_options_come_from_the_first_that_says_them(make: MakeQueue) -> None:
    """Tags, capabilities, delay, retry and priority follow the same order; each is taken as a whole."""
    async with make(tags={"from": "queue", "more": "x"}, retry="d", priority="low", delay=5) as q:

        @q.task(requires=["gpu", "big"], tags={"from": "type"}, retry=RetryPolicy(initial=1))
        def work() -> None: ...

        task = (await work.submit()).task
        assert (task.requires, task.tags, task.priority, task.retry.initial) == (
            ("big", "gpu"),
            {"from": "type"},
            "low",
            1,
        )
        assert (task.available_at - task.created_at).total_seconds() == 5
        task = (await work.options(requires=[], tags={}, delay=0, priority=7).submit()).task
        assert (task.requires, task.tags, task.priority) == ((), {}, 7)
        assert task.available_at == task.created_at
        task = (await q.submit("other")).task
        assert (task.tags, task.retry.initial) == ({"from": "queue", "more": "x"}, 10)


async def test_a_handler_that_comes_later_changes_the_plan(q: Queue) -> None:
    """What was planned for a name is planned anew when its handler is registered."""
    assert (await q.submit("work", {})).task.max_retries == 3

    @q.task(max_retries=9)
    def work() -> None: ...

    assert (await q.submit("work", {})).task.max_retries == 9


async def test_options_add_up(q: Queue) -> None:
    """options(…).options(…) keeps both; the function itself is untouched."""

    @q.task
    def work() -> None: ...

    both = work.options(max_retries=1).options(timeout=2)
    task = (await both.submit()).task
    assert (task.max_retries, task.timeout) == (1, 2.0)
    assert (await work.submit()).task.max_retries == 3


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"max_retries": -1},
        {"priority": "urgent"},
        {"timeout": 0},
        {"key": ""},
        {"tags": {"a": 1}},
        {"requires": "gpu"},
    ],
)
async def test_wrong_options_store_nothing(q: Queue, options: dict[str, Any]) -> None:
    """Each option is checked before anything is stored."""
    with pytest.raises(InvalidInput):
        await q.submit("x", None, **options)
    with pytest.raises(ConfigError, match="did you mean 'timeout'"):
        await q.submit("x", None, timeuot=5)  # pyright: ignore[reportCallIssue]
    assert (await q.stats()).pending == 0


def test_what_a_queue_refuses() -> None:
    """Wrong places, names and settings are said at once."""
    settings = Settings()
    for arguments, said in [
        ({"url": "nonsense"}, "no store URL"),
        ({"url": "gopher://x"}, "no store for gopher://"),
        ({"url": "memory://", "name": "a b"}, "no queue"),
        ({"url": "memory://", "levels": "z"}, "no levels preset"),
        ({"url": "memory://", "store": lambda: None}, "both say where"),
        ({"url": "memory://", "lease": "soon"}, "lease"),
        ({"url": "memory://", "max_retry": 3}, "did you mean 'max_retries'"),
    ]:
        with pytest.raises(ConfigError, match=said):
            Queue(settings=settings, **arguments)


def test_settings_said_of_a_queue_reach_its_workers() -> None:
    """Lease, limits and concurrency are settings of the queue."""
    q = Queue("memory://", settings=Settings(), lease="8s", concurrency=50, max_losses=1)
    assert (q.settings.lease, q.settings.renew, q.settings.concurrency, q.settings.max_losses) == (8.0, 2.0, 50, 1)
    assert q.settings.sources["lease"] == "queue"


def test_the_place_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """QO_URL is where a queue lives that is not told otherwise."""
    monkeypatch.setenv("QO_URL", "memory://from-environment")
    assert Queue().url == "memory://from-environment"
    assert Queue("memory://x").url == "memory://x"
