"""The FastAPI example: with a worker of its own, and with one in the server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.examples.tools import PYTHON, free_port, qo, serving

pytestmark = pytest.mark.slow


@contextmanager
def client(tmp_path: Path, **environment: str) -> Iterator[httpx.Client]:
    """Somebody on the other side of a running server."""
    port = free_port()
    command = (PYTHON, "-m", "uvicorn", "examples.fastapi_app:app", "--port", str(port))
    with (
        serving(*command, cwd=tmp_path, ready="Uvicorn running", **environment),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        yield client


def test_with_a_worker_of_its_own(tmp_path: Path) -> None:
    """Submitted in one process, run in another, read in the first."""
    with client(tmp_path) as web:
        answer = web.post("/thumbnails", json={"url": "https://example.org/a.png", "width": 99, "request_id": "1"})
        assert answer.status_code == 202
        id = answer.json()["id"]
        assert answer.json()["created"] is True
        again = web.post("/thumbnails", json={"url": "https://example.org/a.png", "width": 99, "request_id": "1"})
        assert again.json() == {"id": id, "created": False}
        assert web.get(f"/thumbnails/{id}").json()["state"] == "pending"
        assert web.get(f"/thumbnails/{id}/result").status_code == 409
        qo("worker", "examples.fastapi_app:q", "--burst", cwd=tmp_path)
        assert web.get(f"/thumbnails/{id}").json()["state"] == "completed"
        assert web.get(f"/thumbnails/{id}/result").json() == {"url": "https://example.org/a.png?w=99", "width": 99}


def test_with_the_worker_inside(tmp_path: Path) -> None:
    """One process does both, and ends in order."""
    with client(tmp_path, EMBEDDED_WORKER="1") as web:
        id = web.post("/thumbnails", json={"url": "https://example.org/b.png"}).json()["id"]
        assert web.get(f"/thumbnails/{id}/result", params={"wait": 20}).json()["width"] == 200
    workers = json.loads(qo("stats", "--json", cwd=tmp_path))["workers"]
    assert set(workers.values()) == {0}


@pytest.mark.parametrize("id", ["nonsense", "01970000-0000-7000-8000-000000000000"])
def test_unknown_ids(tmp_path: Path, id: str) -> None:
    """What is not there is a 404, not an error of the server."""
    with client(tmp_path) as web:
        assert web.get(f"/thumbnails/{id}").status_code == 404
        assert web.get(f"/thumbnails/{id}/result").status_code == 404
