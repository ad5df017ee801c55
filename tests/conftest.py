"""Runs `async def` tests and fixtures, and fails a test that leaves an asyncio task behind.

Each test has one event loop, shared with its async fixtures (function scope only). A task is leaked when it is still
alive when the loop stops after the last async step of the test: its own coroutine, or the teardown of its async
fixtures, which may close what the test started through them.
"""

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

RUNNER = pytest.StashKey[asyncio.Runner]()
HAS_ASYNC_FIXTURES = pytest.StashKey[bool]()


def runner_of(item: pytest.Item) -> asyncio.Runner:
    if RUNNER not in item.stash:
        item.stash[RUNNER] = asyncio.Runner(debug=False)
    return item.stash[RUNNER]


def leaks_of(runner: asyncio.Runner) -> str | None:
    """What is still alive in the loop, named by its coroutine; None when all is well."""
    alive = [task for task in asyncio.all_tasks(runner.get_loop()) if not task.done()]
    if not alive:
        return None
    names = sorted(getattr(task.get_coro(), "__qualname__", None) or repr(task.get_coro()) for task in alive)
    return f"{len(alive)} asyncio task(s) leaked: {', '.join(names)}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner = runner_of(pyfuncitem)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    try:
        runner.run(pyfuncitem.obj(**arguments))
    except BaseException as error:
        if leaks := leaks_of(runner):
            error.add_note(leaks)
        raise
    if not pyfuncitem.stash.get(HAS_ASYNC_FIXTURES, False) and (leaks := leaks_of(runner)):
        pytest.fail(leaks, pytrace=False)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
        if item.stash.get(HAS_ASYNC_FIXTURES, False) and (leaks := leaks_of(item.stash[RUNNER])):
            pytest.fail(leaks, pytrace=False)
    finally:
        if RUNNER in item.stash:
            item.stash[RUNNER].close()
            del item.stash[RUNNER]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    function = fixturedef.func
    if not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        return (yield)
    if fixturedef.scope != "function":
        pytest.fail(f"async fixture {fixturedef.argname!r} must have function scope: each test has its own event loop")
    request.node.stash[HAS_ASYNC_FIXTURES] = True
    # pytest calls `func` in the middle of this hook; the definition itself must stay as it was for the next test.
    fixturedef.func = as_sync(function, runner_of(request.node))  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return (yield)
    finally:
        fixturedef.func = function  # pyright: ignore[reportAttributeAccessIssue]


def as_sync(function: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    """The fixture function as pytest knows it: plain, or a generator that is resumed for teardown."""

    def plain(**arguments: Any) -> Any:
        return runner.run(function(**arguments))

    def stepwise(**arguments: Any) -> Generator[Any, None, None]:
        steps = function(**arguments)
        yield runner.run(anext_of(steps))
        try:
            runner.run(anext_of(steps))
        except StopAsyncIteration:
            return
        pytest.fail(f"async fixture {function.__name__!r} yielded twice")

    return stepwise if inspect.isasyncgenfunction(function) else plain


async def anext_of(steps: Any) -> Any:
    # Runner.run wants a coroutine; anext() alone is only awaitable.
    return await anext(steps)
