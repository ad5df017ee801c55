"""qo worker and qo monitor as processes: started, drained, ended."""

import asyncio
import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cli.tools import APP, URL, Program, ok, qo, refused, rows, until

import qo as library
from qo.records import WorkerInfo, encode_record


@pytest.fixture(autouse=True)
def app() -> None:
    Path("app.py").write_text(APP)


def submit(*arguments: str) -> str:
    return ok("submit", *arguments).strip()


def state(id: str) -> str:
    return rows("status", id)[0]["state"]


def test_sigterm_drains() -> None:
    """What runs may end, what waits stays, and the exit code is 0."""
    running = submit("gate", '{"name": "one"}')
    with Program("worker", "app:q", "--log-format", "text") as program:
        until(Path("one.started").exists, "the handler started")
        program.signal(signal.SIGTERM)
        program.says("stopping")
        waiting = submit("gate", '{"name": "two"}')
        Path("one.go").touch()
        assert program.ends() == 0
    assert (state(running), state(waiting)) == ("completed", "pending")


def test_shutdown_deadline_gives_back() -> None:
    """A task that does not end in time is pending again when the worker is gone."""
    running = submit("gate", '{"name": "one"}')
    with Program("worker", "app:q", "--shutdown-deadline", "100ms") as program:
        until(Path("one.started").exists, "the handler started")
        program.signal(signal.SIGINT)
        assert program.ends() == 0
    assert state(running) == "pending"
    assert rows("status", running)[0]["failures"] == 0


def test_second_signal_leaves_at_once() -> None:
    """Whoever asks twice does not want to wait."""
    submit("gate", '{"name": "one"}')
    with Program("worker", "app:q") as program:
        until(Path("one.started").exists, "the handler started")
        program.signal(signal.SIGTERM)
        program.says("stopping")
        program.signal(signal.SIGTERM)
        assert program.ends() == 1


def test_burst_and_once() -> None:
    """--burst ends when nothing is left, --once after one claim; both without a module's queue being named."""
    ids = [submit("add", '{"a": 1}') for _ in range(25)]
    with Program("worker", "app", "--burst", "-c", "5") as program:
        assert program.ends() == 0
    assert {state(id) for id in ids} == {"completed"}
    one = submit("add", '{"a": 1}')
    with Program("worker", "app", "--once") as program:
        assert program.ends() == 0
    assert state(one) == "completed"
    assert "ran 1 tasks" in "".join(program.lines)


def test_types_and_any_type() -> None:
    """--types leaves the others alone; --any-type fails what nobody handles."""
    add, broken, unknown = submit("add", '{"a": 1}'), submit("broken", '{"text": "x"}'), submit("unknown")
    with Program("worker", "app", "--burst", "--types", "add") as program:
        assert program.ends() == 0
    assert [state(id) for id in (add, broken, unknown)] == ["completed", "pending", "pending"]
    with Program("worker", "app", "--burst", "--any-type") as program:
        assert program.ends() == 0
    assert state(unknown) == "failed"


def test_capabilities() -> None:
    """A task that requires something waits for a worker that has it."""
    id = submit("add", '{"a": 1}', "--requires", "gpu")
    with Program("worker", "app", "--burst") as program:
        assert program.ends() == 0
    assert state(id) == "pending"
    with Program("worker", "app", "--burst", "--capabilities", "gpu,eu") as program:
        assert program.ends() == 0
    assert state(id) == "completed"


def test_json_logs() -> None:
    """--log-format json has one object on each line, with the task's id."""
    id = submit("add", '{"a": 1}')
    with Program("worker", "app", "--burst", "--log-format", "json") as program:
        assert program.ends() == 0
    lines = [json.loads(line) for line in program.lines]
    assert any(line.get("task_id") == id and line.get("state") == "completed" for line in lines)


def test_url_is_for_queues_that_name_none() -> None:
    """--url reaches a queue made without one; a queue that says where it lives is not moved."""
    Path("fixed.py").write_text("import qo\nq = qo.Queue('sqlite:///fixed.db')\n@q.task\nasync def add(a: int): ...\n")
    id = ok("submit", "add", '{"a": 1}', "--url", "sqlite:///else.db").strip()
    with Program("worker", "app", "--burst", "--url", "sqlite:///else.db") as program:
        assert program.ends() == 0
    assert rows("status", id, "--url", "sqlite:///else.db")[0]["state"] == "completed"
    with Program("worker", "fixed", "--burst", "--url", "sqlite:///else.db") as program:
        assert program.ends() == 2
    assert "names its own store" in program.lines[-1]


MODULES = {
    "two": "import qo\na = qo.Queue(name='a')\nb = qo.Queue(name='b')\n",
    "none": "q = 1\n",
    "bad": "import qo\n\nundefined_name\n",
    "needs": "import no_such_library\n",
    "memory": "import qo\nq = qo.Queue('memory://')\n",
    "empty": "import qo\nq = qo.Queue()\n",
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which queue? Write qo worker app.tasks:q"),
        (("nothing:q",), "there is no module 'nothing'"),
        (("app.py",), "write the module: qo worker app:q"),
        (("./sub/app.py:q",), "is a file"),
        (("app:nothing",), "app:nothing is not there; queues in app: q"),
        (("app:add",), "not a qo.Queue; queues in app: q"),
        (("two",), "choose one: two:a or :b"),
        (("two:a", "--queue", "b"), "is the queue 'a', not 'b'"),
        (("none",), "there is no qo.Queue in none"),
        (("bad",), "bad.py:3"),
        (("needs",), "No module named 'no_such_library'"),
        (("memory",), "lives in memory://"),
        (("empty",), "nothing to run"),
        (("app", "--types", "ad"), "did you mean add"),
        (("app", "--concurrency", "0"), "--concurrency"),
        (("app", "--lease", "soon"), "is not a duration"),
        (("app", "--lease", "0"), "lease"),
        (("app", "--burst", "--once"), "give one of them"),
        (("app", "--processes", "2", "--id", "w"), "--id is for one process"),
        (("app", "--capabilities", "a b"), "is no capability"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and the last line says what to write."""
    for name, text in MODULES.items():
        Path(f"{name}.py").write_text(text)
    with Program("worker", *arguments) as program:
        assert program.ends() == 2
    assert message in program.lines[-1]
    assert "Traceback" not in "".join(program.lines)


def test_store_not_reachable() -> None:
    """A worker that cannot open its store leaves with exit code 4."""
    with Program("worker", "app", QO_URL="sqlite:///missing/qo.db") as program:
        assert program.ends() == 4


# Monitor.


def test_monitor_gives_back_the_tasks_of_a_killed_worker() -> None:
    """Upkeep alone: the worker died with -9, the monitor makes its task pending again, and ends on SIGTERM."""
    id = submit("gate", '{"name": "one"}')
    with Program("worker", "app:q", "--no-upkeep", "--lease", "1s") as worker:
        until(Path("one.started").exists, "the handler started")
        worker.process.kill()
        worker.ends()
    assert state(id) == "running"
    with Program("monitor", "--interval", "100ms") as monitor:
        until(lambda: state(id) == "pending", "the lease was collected")
        monitor.signal(signal.SIGTERM)
        assert monitor.ends() == 0
    assert rows("status", id)[0]["losses"] == 1


def test_monitor_tells_about_silent_workers() -> None:
    """A worker whose heartbeat is older than the threshold is called by its name."""
    now = datetime.now(UTC)
    info = WorkerInfo(id="w1", host="h", pid=1, version="0", started_at=now, heartbeat_at=now)

    async def show() -> None:
        async with library.Queue(URL) as queue:
            await (await queue.session()).store.put_record("worker", "w1", encode_record(info))

    asyncio.run(show())
    with Program("monitor", "--interval", "50ms", "--worker-health-threshold", "200ms") as monitor:
        assert "w1 is silent" in monitor.says("is silent")[0]
        monitor.signal(signal.SIGINT)
        assert monitor.ends() == 0


def test_monitor_once() -> None:
    """One round, then exit code 0."""
    ok("migrate")
    result = qo("monitor", "--once")
    assert result.exit_code == 0
    assert "0 leases expired" in result.stderr
    refused(2, "monitor", "--interval", "never")
