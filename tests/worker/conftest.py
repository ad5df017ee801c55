"""Queues for the tests of the worker, one for each store that needs no server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worker.worker_tools import make_queue

import qo


@pytest.fixture(params=["memory", "sqlite"])
async def q(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[qo.Queue]:
    queue = make_queue(request.param, tmp_path)
    yield queue
    await queue.close()
