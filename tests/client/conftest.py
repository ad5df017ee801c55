"""Queues on each store that needs no server."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from qo import Queue
from qo.settings import Settings

MakeQueue = Callable[..., Queue]
_numbers = itertools.count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://test-{next(_numbers)}"
    return f"sqlite:///{tmp_path}/qo.db"


@pytest.fixture
def make(url: str) -> MakeQueue:
    """Makes queues on one place, untouched by the environment."""

    def make(**options: Any) -> Queue:
        options.setdefault("settings", Settings())
        return Queue(url, **options)

    return make


@pytest.fixture
async def q(make: MakeQueue) -> AsyncIterator[Queue]:
    async with make() as queue:
        yield queue
