"""A plain script: no `async`, no server, no second terminal.

$ python examples/script.py

The queue is a file, qo.db, beside you (QO_URL names another place). Kill the script in the middle and start it again:
what it had stored runs then.
"""

from collections import Counter

import qo

q = qo.Queue()


@q.task(max_retries=2, retry=qo.RetryPolicy(initial=0.1), timeout=10)
def longest_word(text: str) -> str:
    """A plain function runs in a thread of the worker."""
    words = Counter({word: len(word) for word in text.split()})
    if not words:
        # No retry will help: say so.
        raise qo.Fail("there is no word in it")
    return words.most_common(1)[0][0]


def main() -> None:
    """Submit, let a worker in the background of this process run it, print what came of it."""
    q.start(concurrency=4)
    try:
        texts = ["to be or not to be", "all the world is a stage", ""]
        tasks = [longest_word.submit_sync(text) for text in texts]  # each is on disk when submit_sync returns
        for text, task in zip(texts, tasks, strict=True):
            try:
                print(f"{text!r}: {q.sync.result(task, timeout=30)}")
            except qo.TaskFailed as error:
                print(f"{text!r}: {error.error.message}")
    finally:
        q.stop()  # what still runs may end


# Without this line a process of isolation="process", which imports this file, would run the script once more.
if __name__ == "__main__":
    main()
