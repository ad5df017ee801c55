"""Runs examples as a user would: in another process, in an empty directory."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PYTHON = sys.executable


def environment(**more: str) -> dict[str, str]:
    """The caller's, without its own settings of qo; `examples` can be imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("QO_", "S3_", "DJANGO_"))}
    return clean | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "error::ResourceWarning"} | more


def run(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A program to its end."""
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=60
    )


def ok(*command: str | Path, cwd: Path, **more: str) -> str:
    """What a program that must succeed prints."""
    done = run(*command, cwd=cwd, **more)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def qo(*arguments: str, cwd: Path, **more: str) -> str:
    """The command line."""
    return ok(PYTHON, "-m", "qo", *arguments, cwd=cwd, **more)


@contextmanager
def serving(*command: str | Path, cwd: Path, ready: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A server from the moment it says that it is ready, ended by SIGINT as by Ctrl-C."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if ready in line:
                break
        else:
            raise AssertionError(f"{command} ended before it was ready:\n{''.join(said)}")
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
