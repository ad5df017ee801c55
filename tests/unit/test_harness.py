"""The test harness itself: async tests run, async fixtures work, leaked tasks fail."""

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def harness(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text())
    return pytester


def run(harness: pytest.Pytester, source: str) -> pytest.RunResult:
    harness.makepyfile("import asyncio\nimport pytest\n\n" + source)
    # pytester imports every plugin anew for each run; the ones not under test cost a second each time.
    others = [
        argument for plugin in ("anyio", "hypothesispytest", "cacheprovider") for argument in ("-p", f"no:{plugin}")
    ]
    return harness.runpytest_inprocess(*others)


def test_async_test_really_runs(harness: pytest.Pytester) -> None:
    """A wrong assertion after an await fails, a right one passes."""
    result = run(
        harness,
        """
async def test_right():
    await asyncio.sleep(0)
    assert True

async def test_wrong():
    await asyncio.sleep(0)
    assert 1 == 2
""",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_leaked_task_fails_and_is_named(harness: pytest.Pytester) -> None:
    """A test that leaves a task alive fails, and the message names the task's coroutine."""
    result = run(
        harness,
        """
async def forgotten():
    await asyncio.Event().wait()

async def test_leaks():
    task = asyncio.create_task(forgotten())
    await asyncio.sleep(0)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 asyncio task(s) leaked: forgotten*"])


def test_ended_tasks_are_no_leak(harness: pytest.Pytester) -> None:
    """Tasks that were awaited, or cancelled and awaited, are fine."""
    result = run(
        harness,
        """
async def test_tidy():
    done = asyncio.create_task(asyncio.sleep(0))
    stopped = asyncio.create_task(asyncio.Event().wait())
    await done
    stopped.cancel()
    await asyncio.wait([stopped])
""",
    )
    result.assert_outcomes(passed=1)


def test_leak_does_not_reach_the_next_test(harness: pytest.Pytester) -> None:
    """Each test has its own loop: what one leaks does not fail the next."""
    result = run(
        harness,
        """
async def test_leaks():
    task = asyncio.create_task(asyncio.Event().wait())

async def test_tidy():
    assert len(asyncio.all_tasks()) == 1
""",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_failure_is_not_hidden_by_its_leak(harness: pytest.Pytester) -> None:
    """When a test fails and leaks, its own error is the one reported, with the leak as a note."""
    result = run(
        harness,
        """
async def forgotten():
    await asyncio.Event().wait()

async def test_both():
    task = asyncio.create_task(forgotten())
    raise LookupError("the real reason")
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*LookupError: the real reason*", "*leaked: forgotten*"])


def test_async_fixtures_share_the_loop_of_their_test(harness: pytest.Pytester) -> None:
    """Async fixtures, plain and yielding, run in the test's loop, for async and for plain tests, and are torn down."""
    result = run(
        harness,
        """
ended = []

@pytest.fixture
async def loop():
    return asyncio.get_running_loop()

@pytest.fixture
async def service(loop):
    task = asyncio.create_task(asyncio.Event().wait())
    yield task
    assert asyncio.get_running_loop() is loop
    task.cancel()
    await asyncio.wait([task])
    ended.append(task)

async def test_one(service, loop):
    assert asyncio.get_running_loop() is loop
    assert not service.done()

class TestGroup:
    async def test_two(self, service):
        assert len(ended) == 1

def test_three(service):
    assert len(ended) == 2
""",
    )
    result.assert_outcomes(passed=3)


def test_task_a_fixture_closes_is_no_leak_but_others_are(harness: pytest.Pytester) -> None:
    """With async fixtures the check comes after their teardown, and still finds what they did not close."""
    result = run(
        harness,
        """
async def forgotten():
    await asyncio.Event().wait()

@pytest.fixture
async def tasks():
    made = []
    yield made
    for task in made:
        task.cancel()
    if made:
        await asyncio.wait(made)

async def test_tidy(tasks):
    tasks.append(asyncio.create_task(forgotten()))

async def test_leaks(tasks):
    leaked = asyncio.create_task(forgotten())
""",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaks*", "*leaked: forgotten*"])


def test_wide_async_fixture_is_refused(harness: pytest.Pytester) -> None:
    """An async fixture of module scope would outlive its loop; the message says so."""
    result = run(
        harness,
        """
@pytest.fixture(scope="module")
async def wide():
    return 1

async def test_uses(wide):
    pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*'wide' must have function scope*"])
