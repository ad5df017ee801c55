"""cancel, replay, archive, unarchive, delete and purge: by id and by filter."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.cli.tools import URL, ok, qo, refused, rows, work

import qo as library

NO_SUCH_ID = "01900000-0000-7000-8000-000000000000"


def submit(*arguments: str) -> str:
    return ok("submit", *arguments).strip()


def states() -> dict[str, str]:
    every = [arg for state in ("pending", "completed", "failed", "cancelled", "archived") for arg in ("--state", state)]
    return {task["id"]: task["state"] for task in rows("list", "--all", *every)}


def test_each_verb_by_id() -> None:
    """The life of a task from the command line, each step said in one line."""
    id = submit("add", "--delay", "1h")
    assert ok("cancel", id) == f"cancelled {id}\n"
    assert ok("cancel", id) == f"cancelled {id}\n"
    assert ok("replay", id) == f"replayed {id}\n"
    ok("cancel", id)
    assert ok("retry", id) == f"replayed {id}\n"
    ok("cancel", id)
    assert ok("archive", id) == f"archived {id}\n"
    assert states() == {id: "archived"}
    assert ok("unarchive", id) == f"unarchived {id}\n"
    assert states() == {id: "cancelled"}
    assert ok("delete", id) == f"deleted {id}\n"
    assert states() == {}


def test_force_replays_what_completed() -> None:
    """A completed task runs again only with --force."""
    id = submit("add", '{"a": 1}')
    work()
    assert "use force" in refused(1, "replay", id)
    ok("replay", id, "--force")
    assert states() == {id: "pending"}


@pytest.mark.parametrize("verb", ["cancel", "replay", "archive", "unarchive", "delete"])
def test_refusals(verb: str) -> None:
    """Not found is 3, wrong state 1, no id or no choice 2."""
    id = submit("add", '{"a": 1}')
    assert NO_SUCH_ID in refused(3, verb, NO_SUCH_ID)
    assert "is no id" in refused(2, verb, "abc")
    assert "which tasks?" in refused(2, verb)
    assert "give one of them" in refused(2, verb, id, "--type", "add")
    work()
    if verb in ("cancel", "replay", "unarchive"):
        assert "which is completed" in refused(1, verb, id)


def test_many_ids_one_missing() -> None:
    """What can be done is done, what cannot is said; the exit code is that of the error."""
    one, two = submit("add"), submit("add")
    result = qo("cancel", one, NO_SUCH_ID, two)
    assert result.exit_code == 3
    assert result.stdout == f"cancelled {one}\ncancelled {two}\n"
    assert NO_SUCH_ID in result.stderr


def test_json_answers_for_each() -> None:
    """One object a task, done or not."""
    one = submit("add")
    result = qo("cancel", one, NO_SUCH_ID, "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {"id": one, "done": True, "state": "cancelled", "cancel_requested": False, "error": None}
    assert (second["id"], second["done"]) == (NO_SUCH_ID, False)
    assert NO_SUCH_ID in second["error"]
    assert rows("delete", one)[0]["state"] is None


def test_ids_from_stdin() -> None:
    """- reads ids, so that commands can be piped."""
    ids = [submit("add"), submit("add")]
    assert ok("cancel", "-", input="\n".join(ids)).count("cancelled") == 2
    assert "no ids on stdin" in qo("cancel", "-", input="").stderr


def test_filter_needs_yes_where_nobody_can_be_asked() -> None:
    """Without a terminal nothing happens until --yes is said, and the error says how much it would be."""
    submit("add")
    submit("add")
    other = submit("other")
    assert "this would cancel 2 tasks (state pending or running, type add)" in refused(2, "cancel", "--type", "add")
    assert set(states().values()) == {"pending"}
    assert ok("cancel", "--type", "add", "--yes") == "cancelled 2 tasks\n"
    assert [id for id, state in states().items() if state == "pending"] == [other]
    assert "no task to cancel" in qo("cancel", "--type", "add", "--yes").stderr


def test_filters_mean_the_states_a_verb_is_for() -> None:
    """replay takes failed tasks, archive and delete ended ones, unarchive archived ones."""
    good, bad, waiting = (
        submit("add", '{"a": 1}'),
        submit("broken", "--max-retries", "0"),
        submit("add", "--delay", "1h"),
    )
    work()
    assert ok("replay", "--since", "1h", "-y") == "replayed 1 task\n"
    assert states()[bad] == "pending"
    work()
    assert ok("archive", "--since", "1h", "-y") == "archived 2 tasks\n"
    assert states() == {good: "archived", bad: "archived", waiting: "pending"}
    assert ok("unarchive", "--type", "add", "-y") == "unarchived 1 task\n"
    assert ok("delete", "--since", "1h", "-y") == "deleted 1 task\n"
    assert states() == {bad: "archived", waiting: "pending"}


def test_bulk_of_more_than_a_page() -> None:
    """Thousands are worked through page by page."""

    async def fill() -> None:
        async with library.Queue(URL) as queue:
            await queue.submit_many([queue.call("bulk", number) for number in range(2100)])

    asyncio.run(fill())
    assert ok("cancel", "--type", "bulk", "--yes") == "cancelled 2,100 tasks\n"
    assert set(states().values()) == {"cancelled"}


def test_purge() -> None:
    """Deletes what ended before a time, completed tasks unless others are named."""
    submit("add", '{"a": 1}')
    submit("broken", "--max-retries", "0")
    work()
    assert ok("purge", "--older-than", "1h", "--yes") == "deleted 0 tasks\n"
    assert "this would delete 1 task (completed, ended before" in refused(2, "purge", "--older-than", "0")
    assert ok("purge", "--older-than", "0s", "--yes") == "deleted 1 task\n"
    assert rows("purge", "--older-than", "0s", "--state", "failed", "--yes") == [{"deleted": 1}]
    assert states() == {}


@pytest.mark.parametrize("arguments", [(), ("--older-than", "soon"), ("--older-than", "1d", "--state", "pending")])
def test_purge_wrong_usage(arguments: tuple[str, ...]) -> None:
    """An age is needed, and only ended tasks can go."""
    ok("migrate")
    refused(2, "purge", *arguments)
    assert Path("qo.db").exists()
