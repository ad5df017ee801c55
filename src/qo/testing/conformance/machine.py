"""Which operations the model performs: a Hypothesis state machine, weighted so that the rare situations are reached.

Imported only by `model_test` and `run_model`, since it needs hypothesis.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from qo.outcomes import Cancelled, GivenBack, Outcome, Raised, Returned, Snoozed
from qo.records import Controls
from qo.retry import RetryPolicy
from qo.stores.protocol import Filter
from qo.task import STATES, ErrorInfo
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.harness import Harness
from qo.testing.conformance.model import QUEUES, Model
from qo.testing.conformance.tools import HOUR, failed_for_good, raised
from qo.values import encode_value

T = TypeVar("T")
TYPES = ("a", "b", "c")
NOW_OR_LATER = (0.0, 0.0, HOUR)

numbers = st.integers(0, 10_000)
capabilities = st.sampled_from([(), (), ("gpu",), ("gpu", "arm64")])
queues = st.sampled_from([("default",), ("default",), QUEUES])
# Tasks of every kind, as one list: one draw for a task instead of ten makes the machine several times faster.
SHAPES: list[dict[str, Any]] = [
    {
        "type": TYPES[n % 3],
        "age": (0.0, 0.0, 11 * 60.0, 21 * 60.0, 31 * 60.0)[n % 5],
        "delay": HOUR if n % 4 == 3 else None,
        "priority": ("medium", "high", "low", "low", 3, "high", "medium")[n % 7],
        "requires": ("gpu",) if n % 3 == 2 else (),
        "queue": "other" if n % 5 == 4 else "default",
        "max_retries": n // 3 % 3,
        "retry": RetryPolicy(initial=0) if n // 2 % 3 else RetryPolicy(initial=HOUR, jitter=0),
        "input": (None, {"n": n}, "text")[n // 5 % 3],
        "tags": (None, {"team": "a"}, {"team": "b", "x": "y"})[n // 7 % 3],
    }
    for n in range(60)
]
task_options = st.sampled_from(SHAPES)
keys = st.sampled_from([{}, {}, {"key": "k", "key_window": HOUR}, {"key": "k", "key_window": -HOUR}])
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Returned(encode_value({"sum": 1})),
        Returned(),
        raised(),
        raised(after=0),
        raised(after=HOUR),
        failed_for_good(),
        Raised(ErrorInfo(reason="timeout", message="too long")),
        GivenBack(),
        Cancelled(),
    ]
)
filters = st.builds(
    Filter,
    queue=st.sampled_from([None, *QUEUES]),
    states=st.sampled_from([(), (), ("pending",), ("completed", "failed"), ("archived",), STATES]),
    types=st.sampled_from([(), (), ("a",), ("b", "c")]),
    priorities=st.sampled_from([(), (), ("high",), (3, "low")]),
    tags=st.sampled_from([{}, {}, {"team": "a"}]),
    key=st.sampled_from([None, None, "k"]),
)


class Machine(RuleBasedStateMachine):
    """Operations on a store and its reference; see `Model` for what they check."""

    def __init__(self, harness: Harness, reached: Counter[str]) -> None:
        super().__init__()
        self.harness = harness
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.model = self.run(self._open(reached))

    async def _open(self, reached: Counter[str]) -> Model:
        opener = await self.stack.enter_async_context(self.harness.fresh())
        bench = await Bench.opened(self.harness, opener)
        self.stack.push_async_callback(bench.close)
        return Model(bench, reached)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Perform it now."""
        return self.runner.run(work)

    def teardown(self) -> None:
        """The end of one run: all histories, then the place is left."""
        try:
            self.run(self.model.check_histories())
        finally:
            self.run(self.stack.aclose())
            self.runner.close()

    def has_tasks(self) -> bool:
        return bool(self.model.known)

    def has_attempts(self) -> bool:
        return bool(self.model.attempts)

    @initialize(options=st.lists(task_options, min_size=4, max_size=8))
    def start(self, options: list[dict[str, Any]]) -> None:
        """Most runs would else spend their first steps with nothing to do."""
        self.run(self.model.submit([self.model.bench.task(**task) for task in options]))

    @rule(options=st.lists(st.tuples(task_options, keys), min_size=1, max_size=4))
    def submit(self, options: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self.run(self.model.submit([self.model.bench.task(**task, **key) for task, key in options]))

    @precondition(has_tasks)
    @rule(number=numbers)
    def submit_again(self, number: int) -> None:
        id = self.model.known[number % len(self.model.known)]
        self.run(self.model.submit([self.model.bench.task("a", id=id)]))

    @precondition(has_tasks)
    @rule(
        limit=st.integers(1, 5),
        types=st.sampled_from([None, None, TYPES, ("a",), ("b", "c")]),
        capabilities=capabilities,
        queues=queues,
        room=st.sampled_from([{}, {}, {"a": 1}, {"a": 0, "b": 2}]),
        ttl=st.sampled_from(NOW_OR_LATER),
    )
    def claim(self, **options: Any) -> None:
        if not self.model.bench.capabilities.strict_order:
            options |= {"types": ("a",), "capabilities": (), "queues": ("default",)}
        self.run(self.model.claim(self.model.bench.want(**options)))

    @precondition(has_tasks)
    @rule(limit=st.integers(1, 6), ttl=st.sampled_from(NOW_OR_LATER))
    def claim_anything(self, limit: int, ttl: float) -> None:
        """Most claims of the real world; without it, lanes that few claims can run would fill up."""
        self.claim(limit=limit, ttl=ttl, capabilities=("gpu",), queues=QUEUES)

    @precondition(has_attempts)
    @rule(number=numbers)
    def claim_again(self, number: int) -> None:
        self.run(self.model.claim(self.model.wants[number % len(self.model.wants)], repeat=True))

    @precondition(has_attempts)
    @rule(number=st.integers(0, 5), outcome=outcomes, informed=st.booleans())
    def settle(self, number: int, outcome: Outcome, informed: bool) -> None:
        """One of the latest attempts, which most likely still holds its lease."""
        self.run(self.model.settle(-1 - number, outcome, informed=informed))

    @precondition(has_attempts)
    @rule(number=numbers, outcome=outcomes, informed=st.booleans())
    def settle_any(self, number: int, outcome: Outcome, informed: bool) -> None:
        self.run(self.model.settle(number, outcome, informed=informed))

    @precondition(has_attempts)
    @rule(number=st.integers(0, 5), later=st.booleans())
    def snooze(self, number: int, later: bool) -> None:
        self.run(self.model.settle(-1 - number, Snoozed(self.model.bench.ago(-HOUR if later else 0)), informed=True))

    @precondition(lambda self: bool(self.model.settlements))
    @rule(number=numbers)
    def settle_again(self, number: int) -> None:
        settlement = self.model.settlements[number % len(self.model.settlements)]
        self.run(self.model.write(settlement, "once more"))

    @precondition(has_attempts)
    @rule(number=numbers, ttl=st.sampled_from(NOW_OR_LATER), progress=st.sampled_from([None, b'{"done":1}']))
    def renew(self, number: int, ttl: float, progress: bytes | None) -> None:
        self.run(self.model.renew(number, ttl, progress))

    @precondition(has_attempts)
    @rule(max_losses=st.sampled_from([10, 10, 1]))
    def upkeep(self, max_losses: int) -> None:
        self.run(self.model.expire(None, max_losses))

    @precondition(has_attempts)
    @rule(number=numbers)
    def expire_any(self, number: int) -> None:
        self.run(self.model.expire(number, 10))

    @precondition(has_tasks)
    @rule(number=numbers, stale=st.sampled_from([False, False, True]))
    def cancel(self, number: int, stale: bool) -> None:
        self.run(self.model.amend("cancel", number, stale=stale))

    @precondition(has_attempts)
    @rule(number=st.integers(0, 5))
    def cancel_what_runs(self, number: int) -> None:
        held = self.model.attempts[(-1 - number) % len(self.model.attempts)]
        if held.id in self.model.known:
            self.run(self.model.amend("cancel", self.model.known.index(held.id), stale=False))

    @precondition(has_tasks)
    @rule(number=numbers, stale=st.sampled_from([False, False, True]), force=st.sampled_from([False, False, True]))
    def replay(self, number: int, stale: bool, force: bool) -> None:
        self.run(self.model.amend("replay", number, stale=stale, force=force))

    @precondition(has_tasks)
    @rule(
        verb=st.sampled_from(["archive", "archive", "unarchive", "unarchive", "delete"]),
        number=numbers,
        stale=st.sampled_from([False, False, False, True]),
    )
    def put_away(self, verb: str, number: int, stale: bool) -> None:
        self.run(self.model.amend(verb, number, stale=stale))

    @precondition(has_tasks)
    @rule(number=numbers)
    def remember(self, number: int) -> None:
        self.run(self.model.remember(number))

    @rule(
        queue=st.sampled_from(QUEUES),
        controls=st.sampled_from(
            [Controls(), Controls(), Controls(paused=True), Controls(paused_types=frozenset("a"))]
        ),
    )
    def control(self, queue: str, controls: Controls) -> None:
        self.run(self.model.control(queue, controls))

    @precondition(lambda self: self.harness.clock is not None)
    @rule(seconds=st.sampled_from([1.0, 60.0, 600.0, HOUR, 2 * HOUR]))
    def advance(self, seconds: float) -> None:
        assert self.harness.clock is not None
        self.harness.clock.advance(seconds)

    @precondition(has_tasks)
    @rule(filter=filters, sort=st.sampled_from(["newest", "oldest", "ended"]), limit=st.integers(1, 5))
    def find(self, filter: Filter, sort: Any, limit: int) -> None:
        self.run(self.model.find(filter, sort, limit))

    @rule(filter=filters)
    def purge(self, filter: Filter) -> None:
        self.run(self.model.purge(filter))

    @rule(key=st.sampled_from(["x", "y"]), version=st.sampled_from([-1, 0, 1, 2]), value=st.integers(0, 9))
    def put_record(self, key: str, version: int, value: int) -> None:
        self.run(self.model.put_record(key, b"%d" % value, version))

    @invariant()
    def agreement(self) -> None:
        self.run(self.model.check())


def run_model(harness: Harness, *, examples: int, steps: int, number: int = 0, shrink: bool = True) -> Counter[str]:
    """Run the machine; how often each situation was reached. Raises what it found, with the shortest way there.

    The same number makes the same runs; without shrinking the way there is long, but found faster.
    """
    reached: Counter[str] = Counter()
    run_state_machine_as_test(
        seed(number)(lambda: Machine(harness, reached)),  # pyright: ignore[reportArgumentType] - any factory will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
    return reached
