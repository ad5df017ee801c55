"""The suite is tested too: each planted bug is caught, and the store without bugs passes everything."""

import pytest
from tests.conformance.planted import BUGS, Bug, PlantedHarness
from tests.conformance.planted_functions import RETRIES
from tests.conformance.planted_states import MODEL_BUGS, Damaged, DamagedAndHidden, DamagingHarness

from qo.clock import ManualClock
from qo.stores.memory import SharedMemory
from qo.stores.state import QueueState
from qo.testing.conformance import failures, registry, scenarios
from qo.testing.conformance.machine import run_model


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "-") for bug in BUGS])
def test_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with this bug fails every scenario that is meant to notice it."""
    assert bug.noticed_by and set(bug.noticed_by) <= {each.name for each in scenarios()}
    for target, replacement in bug.patches.items():
        monkeypatch.setattr(target, replacement)
    found = failures(PlantedHarness(bug.state), set(bug.noticed_by))
    assert set(found) == set(bug.noticed_by)
    assert {type(error) for error in found.values()} <= {AssertionError, ExceptionGroup}, found


def test_missed_wakeup_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that wakes nobody is noticed by those who wait."""
    monkeypatch.setattr(SharedMemory, "changed", lambda self: None)
    monkeypatch.setattr(registry, "TIMEOUT", 0.3)
    names = {"wait.woken_by_a_submit", "wait.woken_by_a_resume", "wait.several_can_wait", "wait.no_wakeup_is_missed"}
    assert set(failures(PlantedHarness(QueueState), names)) == names


def test_damaged_record() -> None:
    """A store that hands out damaged records passes, one that hides them does not."""
    names = {each.name for each in scenarios() if each.name.startswith("corrupt.")}
    assert failures(DamagingHarness(Damaged), names) == {}
    assert set(failures(DamagingHarness(DamagedAndHidden), names)) == names


@pytest.mark.parametrize("state", MODEL_BUGS, ids=[state.__name__ for state in MODEL_BUGS])
def test_caught_by_the_model(state: type[QueueState]) -> None:
    """A bug that needs a long story is found by the model, and by no scenario."""
    with pytest.raises(AssertionError):
        for number in range(10):
            run_model(PlantedHarness(state, ManualClock()), examples=50, steps=50, number=number, shrink=False)
    assert failures(PlantedHarness(state)) == {}


@pytest.mark.parametrize("bug", [bug for bug in BUGS if RETRIES in bug.noticed_by], ids=lambda bug: bug.name)
def test_laws_do_not_trust_the_reference(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong decision of lifecycle is the same on both sides; the laws find it all the same."""
    for target, replacement in bug.patches.items():
        monkeypatch.setattr(target, replacement)
    with pytest.raises(AssertionError):
        for number in range(10):
            run_model(PlantedHarness(QueueState, ManualClock()), examples=50, steps=50, number=number, shrink=False)


def test_no_bug() -> None:
    """The store the bugs were planted in passes every scenario without them."""
    assert failures(PlantedHarness(QueueState)) == {}


SITUATIONS = {
    "submit created",
    "submit id_exists",
    "submit key_held",
    "key taken over after its window",
    "claim repeated",
    "claimed across lanes",
    "claimed what was delayed",
    "claimed with a later attempt",
    "a waiting task with a smaller rank was not in the way",
    "an older low task went first",
    "a capability was missing",
    "room was used up",
    "pause kept a task",
    "settle Returned as completed",
    "settle Returned as cancelled",
    "settle Raised as pending",
    "settle Raised as failed",
    "settle Raised as failed when used up",
    "settle GivenBack as pending",
    "settle Snoozed as pending",
    "settle repeated",
    "settle lost",
    "settle cancel_asked",
    "settle expired as pending",
    "settle expired as pending to wait",
    "settle expired as failed",
    "settle expired as cancelled",
    "expiry of a live lease refused",
    "renew held",
    "renew lost",
    "renew cancel_asked",
    "cancel of pending",
    "cancel of running",
    "replay of failed",
    "replay of cancelled",
    "replay of completed",
    "replay of pending",
    "archive of completed",
    "archive of failed",
    "archive of cancelled",
    "unarchive of archived",
    "delete of completed",
    "delete of archived",
    "amend changed",
    "purged",
    "found over several pages",
}


def test_model_reaches_everything() -> None:
    """The model really meets every situation it is there for, within a bounded number of runs."""
    missing = set(SITUATIONS)
    for number in range(20):
        reached = run_model(PlantedHarness(QueueState, ManualClock()), examples=40, steps=50, number=number)
        missing -= {name for name, count in reached.items() if count}
        if not missing:
            break
    assert not missing
