"""Settle: what each outcome makes of a task, and that a cancellation is never lost. Who may settle is in `fencing`."""

from msgspec.structs import replace

from qo import lifecycle
from qo.outcomes import Cancelled, GivenBack, Raised, Returned, Snoozed
from qo.task import ErrorInfo
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import failed_for_good, good, raised
from qo.values import encode_value


@scenario
async def completes(bench: Bench) -> None:
    """A returned value is the output of a completed task; the lease is over, the rest stays."""
    task = await bench.running(input="in", tags={"a": "b"})
    now = bench.now()
    assert await bench.settle(task, Returned(encode_value({"sum": 3})), at=now) == "written"
    done = await bench.get(task.id)
    assert (done.state, done.output, done.error) == ("completed", {"sum": 3}, None)
    assert (done.completed_at, done.updated_at) == (now, now)
    assert (done.lease_id, done.lease_expires_at, done.settled_lease) == (None, None, task.lease_id)
    assert (done.attempt, done.failures, done.losses) == (1, 0, 0)
    assert (done.input, done.tags, done.rank, done.worker_id) == ("in", {"a": "b"}, task.rank, task.worker_id)
    assert (done.started_at, done.created_at) == (task.started_at, task.created_at)
    assert done.version > task.version


@scenario
async def any_output(bench: Bench) -> None:
    """Any JSON value and bytes can be an output."""
    for value in (None, 0, "\x00ü🦆", [1, {"a": None}], b"\x00\xff", {"$bytes": "x"}, "long" * 50_000):
        task = await bench.running()
        assert await bench.settle(task, Returned(encode_value(value))) == "written"
        assert (await bench.get(task.id)).output == value


@scenario
async def retries(bench: Bench) -> None:
    """A failure with retries left puts the task back, counted, with its error, to run later."""
    task = await bench.running(max_retries=1)
    now = bench.now()
    assert await bench.settle(task, raised("first"), at=now) == "written"
    back = await bench.get(task.id)
    assert (back.state, back.failures, back.losses, back.attempt) == ("pending", 1, 0, 1)
    assert (back.lease_id, back.lease_expires_at, back.completed_at) == (None, None, None)
    assert back.available_at > now
    assert back.error == ErrorInfo(reason="raised", message="first", type="ValueError")


@scenario
async def fails_when_retries_are_used_up(bench: Bench) -> None:
    """A task runs max_retries times again, then it is failed."""
    task = await bench.submit(max_retries=2)
    for failures in (1, 2, 3):
        held = await bench.claim_one()
        assert held.failures == failures - 1
        assert await bench.settle(held, raised(f"number {failures}", after=0)) == "written"
    dead = await bench.get(task.id)
    assert (dead.state, dead.failures, dead.attempt) == ("failed", 3, 3)
    assert dead.error is not None and dead.error.message == "number 3"
    assert dead.completed_at is not None
    assert await bench.claim(5) == []


@scenario
async def fails_for_good(bench: Bench) -> None:
    """An error that no retry can mend ends the task at once, whatever retries are left."""
    task = await bench.running(max_retries=9)
    assert await bench.settle(task, failed_for_good()) == "written"
    dead = await bench.get(task.id)
    assert (dead.state, dead.failures) == ("failed", 1)


@scenario
async def keeps_the_whole_error(bench: Bench) -> None:
    """Reason, message, type and traceback of an error come back as they were."""
    error = ErrorInfo(
        reason="crashed",
        message="ü🦆 ' \" \\ \n",
        type="app.Boom",
        traceback="line 1\n  line 2\n" * 300,
        retriable=False,
    )
    task = await bench.running()
    assert await bench.settle(task, Raised(error)) == "written"
    assert (await bench.get(task.id)).error == error
    assert (await bench.history(task.id))[-1].error == error


@scenario
async def gives_back(bench: Bench) -> None:
    """A task that is given back is ready again and nothing is counted."""
    task = await bench.running()
    assert await bench.settle(task, GivenBack()) == "written"
    back = await bench.get(task.id)
    assert (back.state, back.failures, back.losses, back.attempt, back.error) == ("pending", 0, 0, 1, None)
    assert (await bench.claim_one()).attempt == 2


@scenario
async def gives_up_its_own_task(bench: Bench) -> None:
    """A handler may end its own task as cancelled."""
    task = await bench.running()
    assert await bench.settle(task, Cancelled()) == "written"
    ended = await bench.get(task.id)
    assert (ended.state, ended.cancel_requested) == ("cancelled", False)
    assert ended.error is not None and ended.error.reason == "cancelled"
    assert ended.completed_at is not None


@scenario
async def success_clears_the_error(bench: Bench) -> None:
    """A later success takes away the error of the attempt before; history keeps it."""
    task = await bench.running()
    await bench.settle(task, raised("first", after=0))
    await bench.settle(await bench.claim_one(), Returned())
    done = await bench.get(task.id)
    assert (done.state, done.error, done.failures, done.attempt) == ("completed", None, 1, 2)
    errors = [line.error.message if line.error else None for line in await bench.history(task.id)]
    assert errors == [None, None, "first", None, None]


@scenario
async def writes_history(bench: Bench) -> None:
    """Every settlement is one line of history, with the attempt, lease and worker that ended."""
    task = await bench.running()
    await bench.settle(task, raised("boom", after=0))
    again = await bench.claim_one()
    await bench.settle(again, Returned())
    lines = await bench.history(task.id)
    assert [(line.was, line.became, line.attempt) for line in lines] == [
        (None, "pending", 0),
        ("pending", "running", 1),
        ("running", "pending", 1),
        ("pending", "running", 2),
        ("running", "completed", 2),
    ]
    assert [line.lease_id for line in lines] == [None, task.lease_id, task.lease_id, again.lease_id, again.lease_id]
    assert [line.worker_id for line in lines[2:]] == [task.worker_id, again.worker_id, again.worker_id]
    assert lines[2].error is not None and lines[2].error.message == "boom"


@scenario
async def cancellation_not_known(bench: Bench) -> None:
    """A settlement whose sender did not know of a cancellation is refused by cancel_asked and changes nothing."""
    for outcome in (Returned(), raised(), failed_for_good(), GivenBack(), Snoozed(bench.now())):
        task = await bench.running()
        assert await bench.cancel(task.id) == "written"
        before = await bench.get(task.id)
        assert await bench.settle(task, outcome) == "cancel_asked"
        assert await bench.unchanged(before)
        assert len(await bench.history(task.id)) == 3
        await bench.settle(before, Cancelled())


@scenario
async def cancellation_known(bench: Bench) -> None:
    """Once known, the cancellation is the end of the task, whatever the handler did; its output is kept."""
    task = await bench.running()
    await bench.cancel(task.id)
    told = await bench.get(task.id)
    assert await bench.settle(told, Returned(encode_value("late"))) == "written"
    ended = await bench.get(task.id)
    assert (ended.state, ended.output, ended.lease_id) == ("cancelled", "late", None)
    assert ended.completed_at is not None
    assert await bench.settle(task, Returned()) == "written"
    assert await bench.unchanged(ended)


@scenario
async def cancellation_only_imagined(bench: Bench) -> None:
    """A settlement that speaks of a cancellation nobody asked for is refused by cancel_asked."""
    task = await bench.running()
    wrong = replace(lifecycle.settle(task, Returned(), bench.now(), 0), cancel_requested=True)
    assert await bench.write(wrong) == "cancel_asked"
    assert await bench.unchanged(task)


@scenario
async def one_task_of_a_lease(bench: Bench) -> None:
    """Tasks of one lease are settled each for itself."""
    good(await bench.store.submit([bench.task() for _ in range(2)]))
    first, second = await bench.claim(2)
    assert await bench.settle(first, Returned()) == "written"
    assert await bench.unchanged(second)
    assert await bench.settle(second, failed_for_good()) == "written"
    assert ((await bench.get(first.id)).state, (await bench.get(second.id)).state) == ("completed", "failed")


@scenario
async def many_at_once(bench: Bench) -> None:
    """Each settlement of a batch is answered in its place; a refused one does not spoil the others."""
    good(await bench.store.submit([bench.task() for _ in range(6)]))
    tasks = await bench.claim(6)
    await bench.cancel(tasks[2].id)
    await bench.settle(tasks[4], Returned())
    batch = [lifecycle.settle(task, Returned(encode_value(n)), bench.now(), 0.5) for n, task in enumerate(tasks)]
    batch[1] = replace(batch[1], lease_id=bench.ids.new_id())
    answers = good(await bench.store.settle([*batch, batch[0]]))
    assert answers == ["written", "lost", "cancel_asked", "written", "written", "written", "written"]
    states = [(await bench.get(task.id)).state for task in tasks]
    assert states == ["completed", "running", "running", "completed", "completed", "completed"]
    assert (await bench.get(tasks[3].id)).output == 3
    assert len(await bench.history(tasks[0].id)) == 3
    assert await bench.store.settle([]) == []
