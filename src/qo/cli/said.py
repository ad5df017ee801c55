"""What was said before the command, kept for it. Alone here, so that the entry point imports nothing heavy."""

import msgspec


class Said(msgspec.Struct, frozen=True):
    """What was said about where the queue is and how to answer, before the command and after it."""

    url: str | None = None
    queue: str | None = None
    json: bool = False
