"""What the process pool keeps: a job that was given to it (`Running`), and a child with what it is doing (`Slot`)."""

import asyncio
import functools
from collections.abc import Callable

from qo.worker.children import Child, Launched
from qo.worker.jobs import Crashed, EntryRaised, Job, Reply, Stopped, in_words

OnProgress = Callable[[bytes], None]


class Running:
    """A job that was given to the pool."""

    def __init__(
        self, job: Job, number: int, on_progress: OnProgress | None, withdraw: "Callable[[Running], None]"
    ) -> None:
        self.job = job
        self.number = number
        self.on_progress = on_progress
        self.slot: Slot | None = None
        self.given_again = False
        self._withdraw = withdraw
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    async def reply(self) -> Reply:
        """Wait for the end. Cancelling the waiter kills the job."""
        try:
            return await self._reply
        except asyncio.CancelledError:
            self.kill()
            raise

    def cancel(self) -> None:
        """Ask it to stop: sets `channel.cancelled`. One that waits for a child does not begin."""
        if self.slot is None:
            self._withdraw(self)
        else:
            self.slot.child.cancel(self.number)

    def kill(self) -> None:
        """End it now, process and all. The reply is `Stopped`."""
        if self.slot is None:
            self._withdraw(self)
        else:
            self.slot.condemn(Stopped(began=True))

    def answer(self, reply: Reply) -> None:
        """The pool says what came of it."""
        self.slot = None
        if not self._reply.done():
            self._reply.set_result(reply)


class Slot:
    """A child and what the pool knows about it."""

    def __init__(
        self,
        launched: Launched,
        deadline: float,
        heard: "Callable[[Slot, bytes, bytes], None]",
        died: "Callable[[Slot, int, bool], None]",
    ) -> None:
        self.child = Child(launched, functools.partial(heard, self), functools.partial(died, self))
        self.ready = False
        self.running: Running | None = None
        self.deadline: float | None = deadline
        self.fate: Reply | None = None
        """Why the pool killed it, if it did."""
        self.importing = ""
        self.failure: EntryRaised | None = None
        self.served = False

    def condemn(self, fate: Reply) -> None:
        """Kill it; what it was running gets this reply when it is dead."""
        self.fate = self.fate or fate
        self.deadline = None
        self.child.kill()

    def obituary(self, code: int) -> Crashed:
        """How it died, in words."""
        if isinstance(self.fate, Crashed):
            return self.fate
        where = f" while importing {self.importing}" if self.importing and not self.ready else ""
        if self.failure is not None:
            problem = f"{self.failure.type}: {self.failure.message}"
            return Crashed(f"the child process could not start: {problem}{where}", self.failure.traceback)
        return Crashed(in_words(code) + where)
