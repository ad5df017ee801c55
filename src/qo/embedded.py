"""A worker in a thread of this process: `q.start()` and `q.stop()`."""

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from qo.errors import UsageError

if TYPE_CHECKING:
    from qo.queue import Queue

log = logging.getLogger("qo")


class EmbeddedWorker:
    """One worker and its thread. A daemon: a program that ends without `stop` leaves its tasks to their leases."""

    def __init__(self, queue: "Queue", **options: Any) -> None:
        from qo.worker.worker import Worker

        self._worker = Worker(queue, **options)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="qo-worker", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """It still runs."""
        return self._thread.is_alive()

    def stop(self, timeout: float | None = None) -> None:
        """Let it drain, and wait until it has; raise what ended it before."""
        if threading.current_thread() is self._thread:
            raise UsageError("a handler cannot stop the worker it runs in and wait for it; call q.stop() elsewhere")
        self._worker.stop()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the worker has not stopped within {timeout:g} s; it is still draining")
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        try:
            asyncio.run(self._worker.run(signals=False))
        except BaseException as error:
            log.exception("the worker in the background ended")
            self._error = error
