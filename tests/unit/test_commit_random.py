"""Group commit under random interleavings: no answer is lost, doubled or given to the wrong caller."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.commit_tools import After, Before, QuickClock, ScriptedStore, task, turns

from qo import commit as commit_module
from qo.commit import GroupCommit
from qo.errors import InvalidInput, OutcomeUnknown, QoError, Unavailable
from qo.stores.protocol import Submitted
from qo.task import Task

KEYS = st.sampled_from([None, None, "a", "b"])
ACTIONS = st.one_of(
    st.tuples(st.just("submit"), KEYS, st.sampled_from(["fine", "fine", "fine", "bad", "spoiler"])),
    st.tuples(st.just("many"), st.lists(KEYS, max_size=9)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("let go"), st.integers(0, 3)),
    st.tuples(st.just("fate"), st.sampled_from(["fine", "away", "reply lost", "request lost"])),
    st.tuples(st.just("run"), st.integers(0, 4)),
)
FATES: dict[str, Before | None] = {
    "fine": None,
    "away": Before(Unavailable("away")),
    "reply lost": After(OutcomeUnknown("cut")),
    "request lost": Before(OutcomeUnknown("cut")),
}


class Callers:
    """Everybody who called, with what they brought and what they got."""

    def __init__(self) -> None:
        self.store = ScriptedStore(held=True)
        self.group = GroupCommit(self.store.store, QuickClock())
        self.all: list[tuple[list[Task], asyncio.Task[Any]]] = []
        self.released = 0

    def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("submit", key, quality):
                one = task(key)
                if quality == "bad":
                    self.store.bad_items[one.id] = InvalidInput("bad")
                elif quality == "spoiler":
                    self.store.spoilers.add(one.id)
                self.all.append(([one], asyncio.create_task(self.group.submit(one))))
            case ("many", keys):
                tasks = [task(key) for key in keys]
                self.all.append((tasks, asyncio.create_task(self.group.submit_many(tasks))))
            case ("cancel", index) if self.all:
                self.all[index % len(self.all)][1].cancel()
            case ("let go", count):
                self.let_go(count)
            case ("fate", fate):
                self.store.script.append(FATES[fate])
            case _:
                pass

    def let_go(self, count: int) -> None:
        for call in self.store.calls[self.released : self.released + count]:
            call.let_go()
            self.released += 1

    async def finish(self) -> list[Any]:
        """Let everything end; answers in the order of the callers."""
        closing = asyncio.create_task(self.group.close())
        self.store.held = False
        while not closing.done():
            self.let_go(len(self.store.calls))
            await turns(1)
        await closing
        return await asyncio.gather(*(caller for _, caller in self.all), return_exceptions=True)


def check_one(mine: Task, answer: Submitted | QoError, store: ScriptedStore, stored: dict[str, Task]) -> None:
    if isinstance(answer, InvalidInput):
        assert mine.id in store.spoilers or mine.id in store.bad_items
        assert mine.id not in stored
    elif isinstance(answer, Unavailable):
        assert mine.id not in stored, "told that nothing was written"
    elif isinstance(answer, OutcomeUnknown):
        pass
    elif isinstance(answer, QoError):
        raise AssertionError(f"an answer nobody gave: {answer!r}")
    elif answer.outcome == "created":
        assert answer.task.id == mine.id and mine.id in stored
    else:
        assert answer.outcome == "key_held" and answer.task.key == mine.key is not None
        assert answer.task.id in stored and mine.id not in stored


async def play(actions: list[tuple[Any, ...]]) -> None:
    callers = Callers()
    for action in actions:
        callers.act(action)
        await turns(action[1] if action[0] == "run" else 0)
    answers = await callers.finish()
    stored = callers.store.inner._shared.state.tasks
    for (mine, _), answer in zip(callers.all, answers, strict=True):
        if isinstance(answer, asyncio.CancelledError):
            continue
        if isinstance(answer, BaseException):
            assert isinstance(answer, QoError), f"raised {answer!r}"
            each: list[Any] = [answer] * len(mine)
        else:
            each = answer if isinstance(answer, list) else [answer]
        assert len(each) == len(mine)
        for one, its in zip(mine, each, strict=True):
            check_one(one, its, callers.store, stored)
    assert len(callers.store.created) == len(set(callers.store.created)), "created twice"
    alive = [other for other in asyncio.all_tasks() if other is not asyncio.current_task()]
    assert not alive


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few actions must be enough to fill a batch."""
    monkeypatch.setattr(commit_module, "MOST_ITEMS", 4)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=30))
def test_no_answer_is_lost_or_doubled(actions: list[tuple[Any, ...]]) -> None:
    """However calls, cancellations, failures and replies fall, each caller gets the truth about its own tasks."""
    asyncio.run(play(actions))
