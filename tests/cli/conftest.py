"""Each test has a folder of its own, a clean environment, and qo's logging as it was before."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from qo.settings import OTHER_ENVIRONMENT, ROWS


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*(row.environment for row in ROWS.values()), *OTHER_ENVIRONMENT, "S3_BUCKET", "NO_COLOR"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("qo")
    before = (logger.handlers[:], logger.propagate, logger.level)
    yield
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])
