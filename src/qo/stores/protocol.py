"""The store contract: what every engine must do, and all that the rest of qo knows of one.

`qo.testing.conformance` is the definition of this contract; this file is its summary. Behaviour changes here only
together with the suite, and every store passes all of it. Rules that hold for all verbs:

1.  Verbs take many items and answer for each, in the order given. Each is atomic for each item. An item the store
    cannot take is answered by a QoError in its place; a call that raises has written nothing, unless it raises
    OutcomeUnknown.
2.  No SQL, key or connection crosses this line, and nothing branches on a store's name: see `Capabilities`.
3.  Time is the store's. What decides (available? lease run out?) is compared inside the engine with its own clock;
    `now()` gives that same time to `lifecycle`, and is never ahead of it: a task made with it can be claimed at once.
4.  Ids are made before the first try (task ids; one lease id for a claim call), so that any verb can be repeated
    after a lost reply. Unavailable means nothing was written; OutcomeUnknown means repeat with the same ids (a read
    never raises it). A claim is not repeated once its tasks were settled.
5.  A task has a lease exactly while it runs, and `completed_at` exactly when it ended or is archived. `submit` takes
    what `lifecycle.submit` makes.
6.  One event loop, one store: a store object belongs to the loop it was opened on.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.errors import CorruptRecord, QoError
from qo.ordering import Priority
from qo.records import Kind, Record
from qo.task import State, Task, Transition

Sort = Literal["newest", "oldest", "ended"]
"""newest and oldest by id, which is the order of creation; ended: those that ended, the latest first."""

ANY_VERSION = -1
"""For `put_record`: write whatever is there. 0 means create, refusing when it exists."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can do beyond the contract, or how it does it."""

    push_wakeup: bool = False
    """`wait` returns early when another process makes work available."""
    strict_order: bool = True
    """Claims follow rank exactly across all lanes and processes."""
    transactional_submit: bool = False
    object_versions: bool = False
    text_search: bool = False
    certain_death: bool = False
    """Leases of an attached worker whose process is gone expire at once."""


class Submitted(msgspec.Struct, frozen=True):
    """The stored task, and whether it is the one submitted.

    created: it is new. key_held: another task holds the idempotency key, here it is. id_exists: a task with that id was
    there already and is untouched; after a repeated call this means the first try got through.
    """

    task: Task
    outcome: Literal["created", "key_held", "id_exists"]


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for. Paused queues and types are left out by the store."""

    worker_id: str
    lease_id: str
    limit: int
    ttl: float
    """Seconds until the lease runs out."""
    queues: tuple[str, ...] = ("default",)
    types: frozenset[str] | None = None
    """None = any type."""
    capabilities: frozenset[str] = frozenset()
    room: Mapping[str, int] = {}
    """At most that many of a type; types not named have no limit of their own."""
    again: bool = False
    """An earlier try with this lease id may have got through: a store where that costs a request looks only then."""


class Corrupt(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was claimed but cannot be read; its holder settles it as failed."""

    id: str
    lease_id: str
    attempt: int
    message: str


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks now running under the lease of the want, in the order of their rank."""

    tasks: list[Task] = []
    contended: bool = False
    """Others were in the way: ask again at once."""
    next_due: datetime | None = None
    """When to ask again at the latest: the next delayed task of these lanes may run then, or earlier than that one."""
    corrupt: list[Corrupt] = []


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tasks; empty fields do not restrict. Without `states`, archived tasks are left out."""

    queue: str | None = None
    states: tuple[State, ...] = ()
    types: tuple[str, ...] = ()
    priorities: tuple[Priority, ...] = ()
    tags: Mapping[str, str] = {}
    key: str | None = None
    worker_id: str | None = None
    text: str | None = None
    """Found in the input or the error's message, ignoring case of ASCII letters (capability text_search)."""
    created_from: datetime | None = None
    created_before: datetime | None = None
    completed_before: datetime | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the tasks found; `cursor` continues after them, None at the end."""

    tasks: list[Task]
    cursor: str | None = None
    total: int | None = None
    corrupt: list[str] = []
    """Ids of records on this page that cannot be read."""


class PriorityStats(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one priority that could run now."""

    depth: int
    oldest: datetime | None
    """When the one that has waited longest was meant to run."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue in numbers."""

    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    archived: int = 0
    ready: int = 0
    """Pending and available now."""
    delayed: int = 0
    """Pending, not available yet: scheduled, backing off or snoozed."""
    by_type: dict[str, dict[State, int]] = {}
    by_priority: dict[Priority, PriorityStats] = {}
    ended_last_minute: int = 0


class Store(Protocol):
    """One engine that holds tasks."""

    @property
    def capabilities(self) -> Capabilities: ...

    def now(self) -> datetime:
        """The engine's time, as well as it is known here without asking."""
        ...

    async def open(self) -> None:
        """Connect, and create or migrate what is needed. Safe to call by many processes at once."""
        ...

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""
        ...

    # Writing. Each verb may be repeated after OutcomeUnknown.

    async def submit(self, tasks: Sequence[Task]) -> list[Submitted | QoError]:
        """Store new tasks. One key twice in a call: the first takes it."""
        ...

    async def claim(self, want: Want) -> Claimed:
        """Lease the tasks with the smallest rank that this worker can run. A repeat with the same lease id answers with
        what that lease already holds and takes no more."""
        ...

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        """Let each lease run out `ttl` seconds from now instead.

        One that ran out but was not collected is still held.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        """End attempts. Guards and answers: `changes.judge_settlement`."""
        ...

    async def amend(self, amendments: Sequence[Amendment]) -> list[Amended | QoError]:
        """Change tasks from outside, each only if its version is still the one the amendment was made from."""
        ...

    async def expired(self, limit: int) -> list[Task | Corrupt]:
        """Running tasks whose lease ran out, for `lifecycle.expire`; unreadable ones for `lifecycle.give_up`."""
        ...

    async def purge(self, filter: Filter, limit: int) -> int:
        """Delete up to `limit` ended or archived tasks with their history and keys; how many there were."""
        ...

    # Waiting and presence.

    async def wait(self, timeout: float) -> None:
        """Return when there may be work, at the latest after `timeout` seconds. A hint: polling stays correct."""
        ...

    async def attach(self, worker_id: str) -> None:
        """This process runs that worker.

        Where `certain_death` holds, its leases expire at once when the process ends.
        """
        ...

    async def detach(self, worker_id: str) -> None:
        """The worker stopped in good order."""
        ...

    # Reading.

    async def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        """The tasks with these ids, in that order; None for one that is not there (any text may be asked for)."""
        ...

    async def find(
        self,
        filter: Filter,
        *,
        sort: Sort = "newest",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        total: bool = False,
    ) -> Page:
        """A page of the tasks that match, after `cursor`, past the first `offset`. `total` counts all that match."""
        ...

    async def history(self, id: str) -> list[Transition]:
        """Every transition of a task, oldest first."""
        ...

    async def stats(self, queue: str) -> Stats:
        """A queue in numbers."""
        ...

    # Small records: workers, controls, schedules.

    async def records(self, kind: Kind) -> list[Record]:
        """All records of a kind, by key."""
        ...

    async def put_record(self, kind: Kind, key: str, value: msgspec.Raw, version: int = ANY_VERSION) -> Record | None:
        """Write it if its version is still `version`; None when it is not."""
        ...

    async def delete_record(self, kind: Kind, key: str) -> bool:
        """Remove it; False when it was not there."""
        ...
