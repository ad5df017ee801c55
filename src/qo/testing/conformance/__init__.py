"""The store contract as code: every store passes all of this, and what passes is a store.

A store joins with a few lines in a test file:

    class MyHarness(Harness):
        @asynccontextmanager
        async def fresh(self) -> AsyncIterator[Opener]:
            with empty_place() as place:
                yield lambda: MyStore(place)

    test_conformance = conformance(MyHarness())
    test_model = model_test(MyHarness())

One module holds the scenarios of one verb. Needs pytest, and hypothesis for the model; neither is imported before use.
"""

import asyncio
import sys
from collections.abc import Callable

from qo.testing.conformance.bench import Bench, Skipped
from qo.testing.conformance.harness import Harness, Opener
from qo.testing.conformance.registry import MODULES, Scenario, failures, run_scenario, scenarios

__all__ = [
    "Bench",
    "Harness",
    "Opener",
    "Scenario",
    "Skipped",
    "conformance",
    "failures",
    "model_test",
    "run_scenario",
    "scenarios",
]


def model_test(harness: Harness, *, examples: int = 100, steps: int = 50) -> Callable[[], None]:
    """A pytest function that drives the store and the memory store by the same operations and compares everything.

    Give a harness whose stores run on a `ManualClock`, where the engine allows it: then time moves too.
    """

    def test_model() -> None:
        """The store does what the memory store does, whatever happens in whatever order."""
        from qo.testing.conformance.machine import run_model

        run_model(harness, examples=examples, steps=steps)

    return test_model


def conformance(harness: Harness) -> Callable[[Scenario], None]:
    """A pytest function with one case for each scenario; assign it to a name that starts with `test_`."""
    import pytest

    fresh = [name for module in MODULES if (name := f"{__name__}.{module}") not in sys.modules]
    if fresh:
        pytest.register_assert_rewrite(*fresh)
    every = scenarios()

    @pytest.mark.parametrize("scenario", every, ids=[each.name for each in every])
    def test_conformance(scenario: Scenario) -> None:
        """The store keeps this part of the contract."""
        try:
            asyncio.run(run_scenario(scenario, harness))
        except Skipped as reason:
            pytest.skip(str(reason))

    return test_conformance
