"""Submit: what is stored, what a repeat answers, and who holds an idempotency key."""

from qo import lifecycle
from qo.retry import RetryPolicy
from qo.stores.protocol import Filter
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, read, same

INPUTS: tuple[object, ...] = (
    None,
    False,
    0,
    -1.5,
    "",
    "text with \x00 NUL, \u2028, ünïcode, 日本, 🦆, quote ' \" and backslash \\",
    [],
    {},
    [1, [2, {"three": None}]],
    {"": {"nested": [True, {"deep": 1e-300}]}, "a b": 2**53 + 1},
    {"$bytes": "not really"},
    b"",
    bytes(range(256)),
)


@scenario
async def stores_what_was_sent(bench: Bench) -> None:
    """A new task is stored with every field as it was sent, and answered so."""
    task = bench.task(
        "send email",
        age=90,
        delay=HOUR,
        input={"to": "a@b.c"},
        queue="mail",
        priority="low",
        requires=["gpu", "arm64"],
        tags={"team": "a"},
        key="welcome:42",
        key_window=600,
        max_retries=7,
        timeout=12.5,
        retry=RetryPolicy(initial=1, multiplier=3, maximum=60, jitter=0.5, timeout_growth=1.5),
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        unsaid=("max_retries", "retry"),
    )
    answer = await bench.send(task)
    assert answer.outcome == "created"
    assert same(answer.task, task)
    assert same(await bench.get(task.id), task)


@scenario
async def keeps_defaults(bench: Bench) -> None:
    """A task with nothing but a type is stored as lifecycle made it, timeout None included."""
    for task in (bench.task("plain"), bench.task("endless", timeout=None, max_retries=0)):
        await bench.send(task)
        assert same(await bench.get(task.id), task)


@scenario
async def any_input(bench: Bench) -> None:
    """Any JSON value and any bytes come back as they were sent."""
    tasks = [bench.task(input=value) for value in INPUTS]
    good(await bench.store.submit(tasks))
    for value, stored in zip(INPUTS, await read(bench.store, ids(tasks)), strict=True):
        assert stored is not None
        assert stored.input == value and type(stored.input) is type(value), f"{value!r} came back as {stored.input!r}"


@scenario
async def large_input(bench: Bench) -> None:
    """An input of many kilobytes comes back whole, from get and from claim."""
    text = "0123456789abcdef" * 12_000
    task = await bench.submit(input={"text": text})
    assert (await bench.get(task.id)).input == {"text": text}
    assert (await bench.claim_one()).input == {"text": text}


@scenario
async def odd_names(bench: Bench) -> None:
    """Types, keys, tags and queues may hold whatever check_name allows; none of it is taken for syntax."""
    odd = "a'b\"c\\d%e_f:g*h{i}j[k]l?m/n ü日🦆;--"
    task = bench.task(odd, key=odd, tags={odd: odd, "empty": ""}, queue="A_b.c-9")
    await bench.send(task)
    assert same(await bench.get(task.id), task)
    assert ids(await bench.store.find(Filter(queue="A_b.c-9", types=(odd,), key=odd, tags={odd: odd}))) == [task.id]
    assert ids(await bench.claim(types=[odd], queues=["A_b.c-9"])) == [task.id]
    assert (await bench.send(bench.task(odd, key=odd, queue="A_b.c-9"))).outcome == "key_held"


@scenario
async def any_priority(bench: Bench) -> None:
    """Levels stay words and ints stay ints."""
    for priority in ("high", "medium", "low", 5, -5, 2**31 - 1, -(2**31) + 1):
        task = await bench.submit(priority=priority)
        assert (await bench.get(task.id)).priority == priority


@scenario
async def nothing_to_do(bench: Bench) -> None:
    """An empty batch is answered by an empty list."""
    assert await bench.store.submit([]) == []


@scenario
async def answers_in_order(bench: Bench) -> None:
    """Every task of a batch is answered in its place, and all are stored."""
    tasks = [bench.task(f"type-{number % 7}") for number in range(200)]
    answers = good(await bench.store.submit(tasks))
    assert [answer.task.id for answer in answers] == ids(tasks)
    assert {answer.outcome for answer in answers} == {"created"}
    stored = await read(bench.store, ids(tasks))
    assert [task.id if task else None for task in stored] == ids(tasks)


@scenario
async def starts_the_history(bench: Bench) -> None:
    """Submitting is the first line of a task's history, at the time it was created."""
    task = await bench.submit()
    (line,) = await bench.history(task.id)
    assert (line.was, line.became, line.attempt) == (None, "pending", 0)
    assert (line.lease_id, line.worker_id, line.actor, line.error) == (None, None, None, None)
    assert bench.near(line.at, task.created_at)


@scenario
async def seen_by_others(bench: Bench) -> None:
    """A submitted task is there for every other store on the same place when submit returns."""
    other = await bench.open_another()
    task = await bench.submit()
    assert same(await bench.get(task.id, store=other), task)
    assert ids(await bench.claim(store=other)) == [task.id]


@scenario
async def repeated(bench: Bench) -> None:
    """A task that is there already is answered by id_exists and stays as it is."""
    task = bench.task()
    await bench.send(task)
    again = await bench.send(task)
    assert again.outcome == "id_exists"
    assert same(again.task, task)
    assert len(await bench.history(task.id)) == 1


@scenario
async def repeated_late(bench: Bench) -> None:
    """A repeat after the task moved on answers with the task as it is now and does not take it back."""
    task = bench.task(input="first")
    await bench.send(task)
    held = await bench.claim_one()
    again = await bench.send(bench.task("other", id=task.id, input="second"))
    assert again.outcome == "id_exists"
    assert (again.task.state, again.task.lease_id, again.task.input) == ("running", held.lease_id, "first")
    assert same(await bench.get(task.id), held)
    assert len(await bench.history(task.id)) == 2


@scenario
async def one_id_twice_in_a_call(bench: Bench) -> None:
    """Of one id twice in a call the first is stored, the second answered by id_exists."""
    first = bench.task(input=1)
    second = bench.task(id=first.id, input=2)
    answers = good(await bench.store.submit([first, second]))
    assert [answer.outcome for answer in answers] == ["created", "id_exists"]
    assert (await bench.get(first.id)).input == 1
    assert len(await bench.claim(5)) == 1


@scenario
async def key_held(bench: Bench) -> None:
    """A key that is held is answered by key_held with the task that holds it; the new one is not stored."""
    holder = await bench.submit(key="k", input="first")
    late = bench.task("another", key="k", input="second")
    answer = await bench.send(late)
    assert answer.outcome == "key_held"
    assert same(answer.task, await bench.get(holder.id))
    assert await bench.gone(late.id)
    assert await bench.history(late.id) == []
    assert ids(await bench.claim(5)) == [holder.id]


@scenario
async def key_twice_in_a_call(bench: Bench) -> None:
    """Of one key twice in a call the first takes it."""
    tasks = [bench.task(key="k"), bench.task(key="k"), bench.task(key="other")]
    answers = good(await bench.store.submit(tasks))
    assert [answer.outcome for answer in answers] == ["created", "key_held", "created"]
    assert answers[1].task.id == tasks[0].id


@scenario
async def key_outlives_the_run(bench: Bench) -> None:
    """Within its window a key is held whatever became of the task: running, ended or archived."""
    for state in ("running", "completed", "failed", "cancelled", "archived"):
        holder = await bench.make(state, key=f"k-{state}")
        answer = await bench.send(bench.task(key=f"k-{state}"))
        assert (answer.outcome, answer.task.id) == ("key_held", holder.id), f"a {state} task lost its key"
        assert answer.task.state == state


@scenario
async def key_window_passed(bench: Bench) -> None:
    """A key whose window has passed is free: the new task takes it, the old one stays."""
    old = await bench.submit(key="k", age=HOUR, key_window=60)
    new = await bench.send(bench.task(key="k"))
    assert new.outcome == "created"
    assert (await bench.get(old.id)).key == "k"
    third = await bench.send(bench.task(key="k"))
    assert (third.outcome, third.task.id) == ("key_held", new.task.id)


@scenario
async def key_of_a_repeat(bench: Bench) -> None:
    """A repeated submit with a key finds itself: id_exists, not key_held."""
    task = bench.task(key="k")
    await bench.send(task)
    again = await bench.send(task)
    assert (again.outcome, again.task.id) == ("id_exists", task.id)


@scenario
async def keys_belong_to_a_queue(bench: Bench) -> None:
    """The same key in two queues is two keys."""
    await bench.submit(key="k")
    assert (await bench.send(bench.task(key="k", queue="other"))).outcome == "created"


@scenario
async def deleting_frees_the_key(bench: Bench) -> None:
    """The key of a deleted task is free."""
    holder = await bench.make("completed", key="k")
    assert await bench.amend(lifecycle.delete(holder, bench.now())) == "written"
    assert (await bench.send(bench.task(key="k"))).outcome == "created"


@scenario
async def deleting_a_former_holder(bench: Bench) -> None:
    """Deleting a task that held the key before does not free the key of the one that holds it now."""
    old = await bench.make("completed", key="k", age=HOUR, key_window=60)
    new = await bench.submit(key="k")
    assert await bench.amend(lifecycle.delete(old, bench.now())) == "written"
    answer = await bench.send(bench.task(key="k"))
    assert (answer.outcome, answer.task.id) == ("key_held", new.id)


@scenario
async def mixed_batch(bench: Bench) -> None:
    """New tasks, known ids and held keys in one batch do not disturb each other."""
    known = await bench.submit()
    holder = await bench.submit(key="k")
    batch = [bench.task(), known, bench.task(key="k"), bench.task(key="free"), bench.task()]
    answers = good(await bench.store.submit(batch))
    assert [answer.outcome for answer in answers] == ["created", "id_exists", "key_held", "created", "created"]
    assert answers[2].task.id == holder.id
    assert len(await bench.claim(10)) == 5
