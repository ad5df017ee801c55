"""Renew and settle inside the writer's transaction: read the guards, judge in Python, write what holds.

Nobody else can write between the two steps, so this is one atomic step of the engine. Judging first costs less than a
guarded update that must be rolled back when one item of a batch fails, and what was read serves history and counters.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

from qo.changes import Lease, Renewed, Settled, Settlement, judge_renewal, judge_settlement
from qo.clock import from_micros
from qo.errors import QoError
from qo.stores.sqlite.counts import Counts, count
from qo.stores.sqlite.rows import SETTLE_WIDTH, Guard, history_row, read_guards, settle_row, to_json
from qo.stores.sqlite.text import chunks, sql, sql_rows


def renew(connection: sqlite3.Connection, leases: Sequence[Lease], ttl: float, now: int) -> list[Renewed | QoError]:
    """Move the expiry of what is held. A lease that comes twice shows its latest progress."""
    later = now + round(ttl * 1_000_000)
    guards = _guards(connection, [lease.id for lease in leases])
    answers: list[Renewed | QoError] = []
    news: dict[int, str | None] = {}
    for lease in leases:
        guard = guards.get(lease.id)
        answer = judge_renewal(guard, lease)
        answers.append(answer)
        if guard is not None and answer != "lost":
            news[guard.pk] = news.get(guard.pk) if lease.raw_progress is None else lease.raw_progress.decode()
    for some in chunks(list(news.items())):
        rows: list[Any] = [later, *(value for pair in some for value in pair)]
        connection.execute(sql_rows("renew", 2, len(some)), rows)
    return answers


def settle(connection: sqlite3.Connection, settlements: Sequence[Settlement], now: int) -> list[Settled | QoError]:
    """End the attempts whose guards hold. A task that comes twice is judged again after its first one."""
    guards = _guards(connection, [settlement.id for settlement in settlements])
    moment = from_micros(now)
    answers: list[Settled | QoError] = []
    accepted: dict[int, tuple[Guard, Settlement]] = {}
    again: list[int] = []
    for index, settlement in enumerate(settlements):
        guard = guards.get(settlement.id)
        if guard is not None and guard.pk in accepted:
            again.append(index)
            answers.append("lost")
            continue
        answer = judge_settlement(guard, settlement, moment)
        if guard is not None and answer == "written":
            accepted[guard.pk] = (guard, settlement)
        answers.append("written" if answer == "repeated" else answer)
    _write(connection, list(accepted.values()), now)
    if again:
        later = settle(connection, [settlements[index] for index in again], now)
        for index, answer in zip(again, later, strict=True):
            answers[index] = answer
    return answers


def _write(connection: sqlite3.Connection, accepted: Sequence[tuple[Guard, Settlement]], now: int) -> None:
    moved: Counts = Counter()
    for some in chunks(accepted):
        rows = [value for guard, settlement in some for value in settle_row(guard, settlement, now)]
        connection.execute(sql_rows("settle", SETTLE_WIDTH, len(some)), rows)
        lines = [value for guard, settlement in some for value in history_row(guard, settlement)]
        connection.execute(sql_rows("settle_history", 8, len(some)), lines)
        for guard, settlement in some:
            moved[guard.queue, guard.type, guard.priority, settlement.state] += 1
            moved[guard.queue, guard.type, guard.priority, "running"] -= 1
    count(connection, moved)


def _guards(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Guard]:
    (text,) = connection.execute(sql("guards"), {"ids": to_json(ids)}).fetchone()
    return read_guards(text)
