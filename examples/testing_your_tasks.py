"""How to test tasks with pytest: the function itself, then the queue in memory. No server, no mocks, no sleeping.

$ pytest examples/testing_your_tasks.py

`welcome` stands for your own module; with `q = qo.Queue()` there, `QO_URL=memory://` in the environment of the tests
(a line in conftest.py, before your module is imported) puts its queue in memory.
"""

from collections.abc import Callable, Iterator

import pytest

import qo

Send = Callable[[str], None]


def welcome_tasks(q: qo.Queue, send: Send) -> qo.TaskFunction[[str], str]:
    """The code under test. Made by a function here, so that each test has a queue of its own."""

    @q.task(max_retries=1, retry=qo.RetryPolicy(initial=0))
    def welcome(to: str) -> str:
        if "@" not in to:
            raise qo.Fail(f"no address: {to}")
        send(to)
        return f"welcomed {to}"

    return welcome


@pytest.fixture
def q() -> Iterator[qo.Queue]:
    """`memory://` without a name is empty and nobody else's."""
    queue = qo.Queue("memory://")
    yield queue
    queue.sync.close()


def test_the_function_alone(q: qo.Queue) -> None:
    """Calling a task runs the plain function: most tests need no queue."""
    sent: list[str] = []
    welcome = welcome_tasks(q, sent.append)
    assert welcome("ada@example.org") == "welcomed ada@example.org"
    assert sent == ["ada@example.org"]


def test_submit_and_run(q: qo.Queue) -> None:
    """`run_once` claims once, runs what it got to its end and says how many it were."""
    sent: list[str] = []
    welcome = welcome_tasks(q, sent.append)
    task = welcome.submit_sync("ada@example.org")
    assert q.sync.run_once() == 1
    assert q.sync.result(task, timeout=0) == "welcomed ada@example.org"
    assert sent == ["ada@example.org"]


def test_retries(q: qo.Queue) -> None:
    """Without backoff each failed attempt is available at once; one `run_once` is one attempt."""
    sent: list[str] = []

    def send(to: str) -> None:
        sent.append(to)
        raise ConnectionError("mail server away")

    task = welcome_tasks(q, send).submit_sync("ada@example.org")
    assert q.sync.run_once() == 1
    assert q.sync.get(task.id).state == "pending"
    assert q.sync.run_once() == 1
    with pytest.raises(qo.TaskFailed, match="mail server away"):
        q.sync.result(task, timeout=0)
    assert len(sent) == 2


def test_what_is_due_later(q: qo.Queue) -> None:
    """A delayed task is not run by `run_once`; `replay` makes it due now."""
    sent: list[str] = []
    task = welcome_tasks(q, sent.append).options(delay="1h").submit_sync("ada@example.org")
    assert q.sync.run_once() == 0
    q.sync.replay(task.id)
    assert q.sync.run_once() == 1


def test_what_was_submitted(q: qo.Queue) -> None:
    """Code that submits is tested by looking at the queue; nothing runs."""
    welcome_tasks(q, print).options(tags={"team": "a"}).submit_sync("ada@example.org")
    (task,) = q.sync.find(type="welcome").tasks
    assert (task.input, task.tags) == ({"to": "ada@example.org"}, {"team": "a"})


def test_a_wrong_call(q: qo.Queue) -> None:
    """What does not fit the signature is refused before anything is stored."""
    welcome = welcome_tasks(q, print)
    with pytest.raises(qo.InvalidInput):
        welcome.submit_sync(["ada@example.org"])  # type: ignore[arg-type]
    assert q.sync.stats().pending == 0
