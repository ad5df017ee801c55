"""The list of scenarios and how one of them is run. Used by the public API and by the scenario modules."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from qo.testing.conformance.bench import Bench, Skipped
from qo.testing.conformance.harness import Harness

MODULES = (
    "submit",
    "claim",
    "order",
    "due",
    "renew",
    "settle",
    "fencing",
    "expire",
    "amend",
    "read",
    "find",
    "purge",
    "records",
    "wait",
    "corrupt",
    "races",
    "races_outside",
)
TIMEOUT = 30.0
"""Seconds after which a scenario counts as hung."""


@dataclass(frozen=True)
class Scenario:
    """One promise of the contract, with the code that checks it."""

    name: str
    contract: str
    check: Callable[[Bench], Awaitable[None]]


_scenarios: dict[str, Scenario] = {}


def scenario(check: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
    """Register a scenario; its docstring is the contract it checks."""
    name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
    if name in _scenarios:
        raise ValueError(f"two scenarios are called {name}")
    _scenarios[name] = Scenario(name, (check.__doc__ or "").strip(), check)
    return check


def scenarios() -> list[Scenario]:
    """Every scenario, in the order of the modules."""
    for module in MODULES:
        importlib.import_module(f"qo.testing.conformance.{module}")
    return list(_scenarios.values())


async def run_scenario(scenario: Scenario, harness: Harness) -> None:
    """Run one scenario in a fresh place. Raises what it found, or Skipped when the store does not claim to do it."""
    async with harness.fresh() as opener, asyncio.timeout(TIMEOUT):
        bench = await Bench.opened(harness, opener)
        try:
            await scenario.check(bench)
        finally:
            await bench.close()


def failures(harness: Harness, names: set[str] | None = None) -> dict[str, Exception]:
    """Run the scenarios (those named, or all) and say which failed, and how."""
    found: dict[str, Exception] = {}
    for each in scenarios():
        if names is not None and each.name not in names:
            continue
        try:
            asyncio.run(run_scenario(each, harness))
        except Skipped:
            continue
        except Exception as error:
            found[each.name] = error
    return found
