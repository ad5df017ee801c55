"""Claim tasks by hand: for a loop of your own, a notebook, or work that a handler cannot be.

$ python examples/pull_by_hand.py

Inside the block the leases are renewed for you. What the block does not settle is given back at its end, also when it
ends by an exception.
"""

import asyncio

import qo
from qo.pull import ClaimedTask

q = qo.Queue()


async def crawl(claimed: list[ClaimedTask]) -> None:
    """Settle each once: complete, retry, fail, release or snooze."""
    for one in claimed:
        url = one.input["url"]
        if one.cancel_requested:
            await one.release()  # it ends as cancelled, whatever is said now
        elif not url.startswith("https://"):
            await one.fail(f"not a safe address: {url}")  # for good
        elif "slow" in url and one.task.failures == 0:
            await one.retry(after=0, error="the server was busy")  # counts as a failure; after=None takes its backoff
        else:
            await one.heartbeat({"fetching": url})  # progress for others to see; the lease needs no help
            await one.complete({"length": len(url)})


async def main() -> None:
    """Submit by name, no handler needed, and work until nothing is left."""
    async with q:
        urls = ["https://a.example", "http://b.example", "https://slow.example"]
        tasks = await q.submit_many([q.call("crawl", {"url": url}) for url in urls])
        while True:
            async with q.claim("crawl", limit=2) as claimed:  # wait=30 would wait for work up to 30 s
                if not claimed:
                    break
                await crawl(claimed)
        for task in tasks:
            now = await task.refresh()
            print(now.input["url"], now.state, now.attempt, now.output if now.error is None else now.error.message)


if __name__ == "__main__":
    asyncio.run(main())
