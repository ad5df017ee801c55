"""What the author of a store brings to the suite: a way to get an empty place and to open stores on it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from qo.clock import ManualClock
from qo.stores.protocol import Store

Opener = Callable[[], Store]
"""Makes a store object, not opened yet, on the place of `Harness.fresh`; each call is like another process."""


class Harness:
    """How the suite reaches one kind of store. Subclass it and write `fresh`; the rest is optional."""

    clock: ManualClock | None = None
    """The clock the stores were given, when they take one: the model then moves time. None: the engine's own time."""

    rounds: int = 10
    """How often each race is run; a slow engine may lower it, never below 2."""

    def fresh(self) -> AbstractAsyncContextManager[Opener]:
        """An isolated, empty place (a database, a prefix), removed at the end. The suite opens and closes stores."""
        raise NotImplementedError

    async def corrupt(self, store: Store, task_id: str) -> bool:
        """Make the stored record of a pending task unreadable, as a bad disk would; False when that cannot be done."""
        return False
