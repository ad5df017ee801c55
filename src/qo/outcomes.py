"""What a handler did with its attempt. The worker (or a remote one, over the wire) reports it; `lifecycle` decides."""

from datetime import datetime

import msgspec

from qo.task import ErrorInfo
from qo.values import NULL


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """It finished; `output` is its JSON."""

    output: msgspec.Raw = NULL


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """It failed: raised, timed out, crashed, got bad input.

    `after` asks for that many seconds instead of the backoff.
    """

    error: ErrorInfo
    after: float | None = None


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """It stopped because it was asked to, or gave up on its own task."""


class GivenBack(msgspec.Struct, frozen=True, tag="given_back"):
    """It was not run, or not to the end, through no fault of its own (shutdown)."""


class Snoozed(msgspec.Struct, frozen=True, tag="snoozed"):
    """It asked to be run again at that time; nothing is counted."""

    until: datetime


Outcome = Returned | Raised | Cancelled | GivenBack | Snoozed


def timed_out(seconds: float) -> Raised:
    """The attempt took longer than its timeout."""
    return Raised(ErrorInfo(reason="timeout", message=f"no result after {seconds:g} s"))


def crashed(message: str) -> Raised:
    """The process of the handler died."""
    return Raised(ErrorInfo(reason="crashed", message=message))


def unreadable(message: str) -> Raised:
    """The stored record cannot be decoded; trying again will not help."""
    return Raised(ErrorInfo(reason="corrupt", message=message, retriable=False))
