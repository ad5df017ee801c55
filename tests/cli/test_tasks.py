"""submit, result, status, history and list."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.tools import URL, make_queue, ok, qo, refused, rows, work

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NO_SUCH_ID = "01900000-0000-7000-8000-000000000000"


def submit(*arguments: str) -> str:
    return ok("submit", *arguments).strip()


# Submit.


def test_submit_prints_only_the_id() -> None:
    """What a script needs stands alone on stdout."""
    assert ID.fullmatch(submit("add", '{"a": 1}'))


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        (("add", '{"a": 1}'), {"a": 1}),
        (("--type", "add", "--input", "[1]"), [1]),
        (("--type", "add", "[2]"), [2]),
        (("add",), None),
        (("add", "hello {", "--text"), "hello {"),
        (("add", "hello", "--bytes"), {"$bytes": "aGVsbG8="}),
        (("add", "@input.json"), {"from": "file"}),
        (("add", "@input.json", "--text"), '{"from": "file"}'),
    ],
)
def test_forms_of_input(arguments: tuple[str, ...], stored: object) -> None:
    """JSON, text, bytes; an argument, an option, a file."""
    Path("input.json").write_text('{"from": "file"}')
    (task,) = rows("submit", *arguments)
    assert task["input"] == stored


def test_input_from_stdin() -> None:
    """- reads stdin, bytes included."""
    assert json.loads(ok("submit", "add", "-", "--json", input='{"a": 2}'))["input"] == {"a": 2}
    assert json.loads(ok("submit", "add", "-", "--bytes", "--json", input=b"\xff"))["input"] == {"$bytes": "/w=="}


def test_options_are_stored() -> None:
    """Each option of a task reaches the record."""
    options = "--priority high --key k --tag team=a --tag x=y=z --max-retries 0 --timeout none --requires gpu,eu"
    (task,) = rows("submit", "add", *options.split(), "--delay", "1h")
    assert (task["priority"], task["key"], task["max_retries"], task["timeout"]) == ("high", "k", 0, None)
    assert (task["tags"], task["requires"]) == ({"team": "a", "x": "y=z"}, ["eu", "gpu"])
    assert task["available_at"] > task["created_at"]
    assert task["created"] is True
    (later,) = rows("submit", "add", "--run-after", "2999-01-01T00:00Z", "--priority", "7", "--timeout", "90s")
    assert (later["available_at"], later["priority"], later["timeout"]) == ("2999-01-01T00:00:00Z", 7, 90.0)


def test_key_held() -> None:
    """A second task with the key is not stored; the first one's id is printed, and why."""
    first = submit("add", "--key", "k")
    again = qo("submit", "add", "--key", "k")
    assert (again.exit_code, again.stdout.strip()) == (0, first)
    assert "'k' is held by this task" in again.stderr
    assert rows("submit", "add", "--key", "k")[0]["created"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which type?"),
        (("add", "{bad"), "not JSON"),
        (("add", "@none.json"), "none.json: No such file"),
        (("add", "--text"), "which input?"),
        (("add", "1", "--text", "--bytes"), "give one of them"),
        (("add", "1", "--input", "2"), "--input and an argument"),
        (("add", "1", "--type", "b"), "--type and an argument"),
        (("add", "--delay", "soon"), "'--delay': 'soon' is not a duration; write seconds or 10s"),
        (("add", "--run-after", "soon"), "write 2031-05-01T12:00"),
        (("add", "--delay", "1s", "--run-after", "2999-01-01T00:00Z"), "give one of them"),
        (("add", "--priority", "urgent"), "there are high, medium, low"),
        (("add", "--tag", "team"), "is not NAME=TEXT"),
        (("add", "--max-retries", "-1"), "--max-retries"),
        (("add", "--result-timeout", "1s"), "is for --wait"),
        (("add", "--nonsense"), "qo submit --help"),
        (("add", "1", "2", "3"), "qo submit --help"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and one line that says what to write; no file is made."""
    assert message in refused(2, "submit", *arguments)
    assert not Path("qo.db").exists()


def test_wait_prints_the_result() -> None:
    """--wait answers with what the handler returned, or fails with it."""
    first, failing = submit("add", '{"a": 1}', "--key", "k"), submit("broken", "--key", "bad", "--max-retries", "0")
    work()
    answer = qo("submit", "add", '{"a": 1}', "--key", "k", "--wait")
    assert (answer.exit_code, answer.stdout) == (0, "2\n")
    assert f"submitted {first}" in answer.stderr
    answer = qo("submit", "broken", "--key", "bad", "--wait")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert f"{failing} (broken) failed after 1 attempt, raised: ValueError: no" in answer.stderr
    answer = qo("submit", "add", "--wait", "--result-timeout", "10ms")
    assert answer.exit_code == 1
    assert "is a worker for this type running?" in answer.stderr


# Result.


def test_result() -> None:
    """JSON as it is, bytes raw, and exit code 1 for what has no output."""
    number, bad, blob = submit("add", '{"a": 41}'), submit("broken", "--max-retries", "0"), submit("blob")
    waiting = submit("add", '{"a": 1}', "--delay", "1h")
    work()
    assert ok("result", number) == "42\n"
    assert qo("result", blob).stdout_bytes == b"\x00\xff"
    assert "raised: ValueError: no" in refused(1, "result", bad)
    assert "did not end within 0 s" in refused(1, "result", waiting, "--timeout", "0")
    ok("cancel", waiting)
    assert "was cancelled" in refused(1, "result", waiting)
    ok("archive", number)
    assert ok("result", number) == "42\n"


def test_result_json_is_the_task() -> None:
    """--json has output and error in one object, and the exit code still tells."""
    number, bad = submit("add", '{"a": 41}'), submit("broken", "--max-retries", "0")
    work()
    assert rows("result", number)[0]["output"] == 42
    failed = qo("result", bad, "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["error"]["reason"] == "raised"


# Status and history.


def test_status_of_a_failed_task() -> None:
    """Everything a person wants to know, the traceback included."""
    id = submit("broken", '{"text": "oh\\u001b[31m no"}', "--max-retries", "0", "--tag", "team=a", "--key", "k")
    work()
    shown = ok("status", id)
    for text in (id, "broken", "failed", "team=a", "ValueError: oh", "Traceback", "1 (1 failed, 0 lost"):
        assert text in shown
    assert "\x1b" not in shown


def test_status_json_has_every_field_always() -> None:
    """The same keys for a fresh task and an ended one; times are ISO."""
    id, bad = submit("add", '{"a": 1}'), submit("broken", "--max-retries", "0")
    (fresh,) = rows("status", id)
    work()
    ended, failed = rows("status", id, bad)
    assert set(fresh) == set(ended) == set(failed)
    assert {"id", "queue", "type", "input", "state", "output", "error", "effective_priority", "attempt"} <= set(fresh)
    assert (fresh["output"], fresh["error"], ended["output"]) == (None, None, 2)
    assert set(failed["error"]) == {"reason", "message", "type", "traceback", "retriable"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", ended["completed_at"])


def test_history() -> None:
    """Every transition, with who and why."""
    id = submit("broken", "--max-retries", "0")
    work()
    ok("replay", id)
    lines = rows("history", id)
    assert [(line["from"], line["to"]) for line in lines] == [
        (None, "pending"),
        ("pending", "running"),
        ("running", "failed"),
        ("failed", "pending"),
    ]
    assert lines[2]["error"]["message"] == "no"
    assert lines[3]["actor"].startswith("cli")
    assert {frozenset(line) for line in lines} == {frozenset(lines[0])}
    assert "raised: no" in ok("history", id)
    assert lines[0]["at"][:19] in ok("history", id, "--exact")


@pytest.mark.parametrize("command", ["status", "history", "result"])
def test_not_found(command: str) -> None:
    """An id that does not exist is exit code 3; what is no id at all is wrong usage."""
    submit("add")
    assert NO_SUCH_ID in refused(3, command, NO_SUCH_ID)
    assert "is no id" in refused(2, command, "abc")


# List.


def test_list_filters() -> None:
    """Each filter leaves out what does not match; archived tasks only when asked for."""
    one = submit("add", '{"a": 1}', "--priority", "high", "--tag", "team=a", "--key", "k1")
    two = submit("broken", '{"text": "needle"}', "--max-retries", "0")
    three = submit("other", "--delay", "1h")
    work()

    def found(*arguments: str) -> list[str]:
        return [task["id"] for task in rows("list", *arguments)]

    assert found() == [three, two, one]
    assert found("--sort", "oldest") == [one, two, three]
    assert found("--sort", "ended")[0] in (one, two)
    assert found("--state", "failed", "--state", "pending") == [three, two]
    assert found("--status", "completed") == [one]
    assert found("--type", "add", "--type", "other") == found("--type", "add,other") == [three, one]
    assert found("--priority", "high") == found("--tag", "team=a") == found("--key", "k1") == [one]
    assert found("--text", "needle") == [two]
    assert found("--since", "1h") == [three, two, one]
    assert found("--until", "1h") == found("--since", "2999-01-01") == []
    assert found("--worker", rows("status", one)[0]["worker_id"]) == [two, one]
    ok("archive", one)
    assert found() == [three, two]
    assert found("--state", "archived") == [one]


def test_list_pages() -> None:
    """--limit stops and says how to go on; --all does not stop."""
    ids = [submit("add", str(number)) for number in range(5)]
    first = qo("list", "--json", "--limit", "2")
    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == ids[:2:-1]
    cursor = first.stderr.split("--cursor ")[1].strip()
    assert [task["id"] for task in rows("list", "--cursor", cursor)] == ids[2::-1]
    assert len(rows("list", "--all", "--limit", "1")) == 5


def test_list_for_people_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and times are whole; only a long type is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    id = submit("a_very_long_type_name_that_does_not_fit_into_the_line", "--delay", "2h")
    for arguments in ((), ("--exact",)):
        lines = ok("list", *arguments).splitlines()
        assert len(lines) == 2
        assert max(map(len, lines)) <= 80
        assert lines[1].startswith(f"{id}  pending  a_v")
    assert ok("list").rstrip().endswith("in 2 h")


@pytest.mark.parametrize("columns", [110, 130, 200])
@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_wide_list_keeps_ids_whole(columns: int, exact: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With priority, tries and error beside it the id can still be copied, however long type and error are."""
    monkeypatch.setenv("COLUMNS", str(columns))
    submit("a_very_long_type_name_that_does_not_fit_into_the_line" * 3, "--delay", "2h")
    id = submit("broken", json.dumps({"text": "too long to be shown " * 20}), "--max-retries", "0", "--priority", "-12")
    work()
    lines = ok("list", *exact).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= columns
    assert lines[1].startswith(f"{id}  failed ")
    assert "-12       1" in lines[1]
    assert "raised" in lines[1]


def test_empty_list_says_what_to_do() -> None:
    """Nobody is left before an empty screen."""
    ok("migrate")
    assert "submit one with: qo submit" in qo("list").stderr
    assert "none has state failed, type x" in qo("list", "--state", "failed", "--type", "x").stderr
    assert ok("list", "--json") == ""


@pytest.mark.parametrize(
    "arguments",
    [("--state", "done"), ("--since", "never"), ("--limit", "0"), ("--priority", "urgent"), ("--sort", "x")],
)
def test_wrong_filters(arguments: tuple[str, ...]) -> None:
    """A filter that cannot be meant is wrong usage, not an empty answer."""
    ok("migrate")
    refused(2, "list", *arguments)


def test_no_colours_in_pipes_and_long_lines_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another program reads has no escape codes and is not folded at 80 columns."""
    monkeypatch.delenv("COLUMNS")
    submit("t" * 100)
    done = subprocess.run(
        [sys.executable, "-m", "qo", "--url", URL, "list"], capture_output=True, text=True, check=True
    )
    assert "t" * 100 in done.stdout
    assert "\x1b" not in done.stdout


def test_queues_are_apart() -> None:
    """--queue before or after the command names another queue of the same store."""
    ok("--queue", "b", "submit", "add")
    submit("add", "--queue", "b")
    assert len(rows("list", "--queue", "b")) == 2
    assert rows("list") == []
    assert make_queue().name == "default"
