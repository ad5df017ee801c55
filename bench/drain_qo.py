"""One worker process that works off what is there, timed inside: python -m bench.drain_qo CONCURRENCY TYPE."""

import asyncio
import logging
import sys
import time

import qo
from bench.app import q


async def main() -> None:
    logging.disable(logging.WARNING)
    worker = qo.Worker(q, concurrency=int(sys.argv[1]), types=[sys.argv[2]])
    start = time.perf_counter()
    await worker.run(burst=True)
    print(worker.counters["completed"] / (time.perf_counter() - start))


asyncio.run(main())
