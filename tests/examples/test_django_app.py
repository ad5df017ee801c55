"""The Django example: its own tests, and a real threaded server with many clients at once."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.examples.tools import EXAMPLES, PYTHON, free_port, ok, qo, serving

pytestmark = pytest.mark.slow
CLIENTS = 24


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy, so that its database is not made in the repository."""
    return shutil.copytree(EXAMPLES / "django_app", tmp_path / "site")


def test_its_own_tests(site: Path) -> None:
    """The tests a user would write pass, through Django's test client, with the queue in memory."""
    ok(PYTHON, "manage.py", "test", cwd=site, QO_URL="memory://")


def test_migrations_are_complete(site: Path) -> None:
    """The migration in the repository is what the models need."""
    ok(PYTHON, "manage.py", "makemigrations", "--check", "--dry-run", cwd=site)


def test_a_threaded_server(site: Path) -> None:
    """Sync views in many threads submit at once; a worker in another process sends every receipt once."""
    ok(PYTHON, "manage.py", "migrate", "--verbosity", "0", cwd=site)
    port = free_port()
    with (
        serving(PYTHON, "manage.py", "runserver", "--noreload", str(port), cwd=site, ready="Quit the server"),
        # It says so just before it listens.
        httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=8), timeout=30) as web,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        answers = list(pool.map(lambda n: web.post("/orders", json={"email": f"{n}@example.org"}), range(CLIENTS)))
        assert [answer.status_code for answer in answers] == [201] * CLIENTS
        ids = [answer.json()["id"] for answer in answers]
        assert {web.get(f"/orders/{id}").json()["receipt"] for id in ids} == {"pending"}
        qo("worker", "shop.tasks:q", "--burst", cwd=site)
        for id in ids:
            order = web.get(f"/orders/{id}").json()
            assert (order["receipt"], order["sent"]) == ("completed", True)
    stats = json.loads(qo("stats", "--json", cwd=site))
    assert (stats["completed"], stats["failed"]) == (CLIENTS, 0)
