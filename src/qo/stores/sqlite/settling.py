"""Renew and settle inside the writer's transaction: read the guards, judge in Python, write what holds.

Nobody else can write between the two steps, so this is one atomic step of the engine. Judging first costs less than a
guarded update that must be rolled back when one item of a batch fails, and what was read serves history and counters.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from qo.changes import Lease, Renewed, Settled, Settlement, judge_renewal, judge_settlement
from qo.clock import from_micros, micros
from qo.errors import QoError
from qo.stores.sqlite.counts import Counts, count
from qo.stores.sqlite.rows import (
    PUT_BACK_WIDTH,
    SETTLE_WIDTH,
    Guard,
    error_text,
    put_back_row,
    read_guards,
    settle_row,
    to_json,
)
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
    ended: list[tuple[Any, ...]] = []
    put_back: list[tuple[Any, ...]] = []
    history: list[tuple[Any, ...]] = []
    moved: Counts = Counter()
    for guard, settlement in accepted:
        at, error, state = micros(settlement.at), error_text(settlement.error), settlement.state
        if state == "pending":
            put_back.append(put_back_row(guard, settlement, at, error, now))
        else:
            ended.append(settle_row(guard, settlement, at, error))
        run = (guard.attempt, guard.lease_id, guard.worker_id, error)
        history.append((guard.pk, guard.version + 1, guard.started_at, at, state, *run))
        moved[guard.queue, guard.type, guard.priority, state] += 1
    _run(connection, "settle", SETTLE_WIDTH, ended)
    _run(connection, "put_back", PUT_BACK_WIDTH, put_back)
    _run(connection, "settle_history", 9, history)
    for (queue, type, priority, _), n in list(moved.items()):
        moved[queue, type, priority, "running"] -= n
    count(connection, moved)


def _run(connection: sqlite3.Connection, name: str, width: int, rows: list[tuple[Any, ...]]) -> None:
    for some in chunks(rows):
        connection.execute(sql_rows(name, width, len(some)), list(chain.from_iterable(some)))


def _guards(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Guard]:
    (text,) = connection.execute(sql("guards"), {"ids": to_json(ids)}).fetchone()
    return read_guards(text)
