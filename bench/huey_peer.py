"""Huey on SQLite, as its documents recommend: WAL, a consumer with threads. Runs in an environment of its own.

python huey_peer.py drain FILE COUNT WORKERS | latency FILE COUNT
"""

import sys
import threading
import time

from huey import SqliteHuey  # pyright: ignore[reportMissingImports] - only in its own environment

huey = SqliteHuey(filename=sys.argv[2])
done = threading.Event()
seen = []
count = int(sys.argv[3])


@huey.task()
def nothing(number):
    seen.append(number)
    if len(seen) == count:
        done.set()


@huey.task()
def when(sent):
    seen.append(time.time() - sent)
    if len(seen) == count:
        done.set()


def consume(workers):
    consumer = huey.create_consumer(workers=workers, worker_type="thread", periodic=False)
    threading.Thread(target=consumer.run, daemon=True).start()


if sys.argv[1] == "drain":
    start = time.perf_counter()
    for number in range(count):
        nothing(number)
    submitted = count / (time.perf_counter() - start)
    start = time.perf_counter()
    consume(int(sys.argv[4]))
    done.wait()
    print(submitted, count / (time.perf_counter() - start))
else:
    consume(1)
    time.sleep(2)
    for _ in range(count):
        when(time.time())
        time.sleep(0.02)
    done.wait()
    print(*sorted(seen))
