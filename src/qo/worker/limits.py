"""How many tasks may run at once and how many may start a second, overall and by type, in one worker process."""

from collections.abc import Iterable, Mapping

from qo.clock import Clock


class Slots:
    """Places for running tasks."""

    def __init__(self, size: int, by_type: Mapping[str, int]) -> None:
        self.size = size
        self._by_type = dict(by_type)
        self._used = 0
        self._used_by_type: dict[str, int] = dict.fromkeys(by_type, 0)

    @property
    def used(self) -> int:
        return self._used

    @property
    def free(self) -> int:
        return self.size - self._used

    def take(self, type: str) -> None:
        self._used += 1
        if type in self._by_type:
            self._used_by_type[type] += 1

    def give_back(self, type: str) -> None:
        self._used -= 1
        if type in self._by_type:
            self._used_by_type[type] -= 1

    def room(self) -> dict[str, int]:
        """What is left for each type that has a limit of its own."""
        return {type: limit - self._used_by_type[type] for type, limit in self._by_type.items()}


class TokenBucket:
    """At most `rate` a second, with a burst of as many; 0 is no limit."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._most = max(1.0, rate)
        self._tokens = self._most
        self._at = clock.monotonic()

    def available(self) -> int:
        """How many may start now."""
        now = self._clock.monotonic()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)
        self._at = now
        return int(self._tokens)

    def take(self) -> None:
        self._tokens -= 1

    def wait(self) -> float:
        """Seconds until the next may start."""
        return max(0.0, (1 - self._tokens) / self.rate)


class Rates:
    """The rate limits in force: those of the code, and those an administrator set, which win."""

    def __init__(self, own: Mapping[str, float], clock: Clock) -> None:
        self._own = {type: rate for type, rate in own.items() if rate > 0}
        self._clock = clock
        self._overall: TokenBucket | None = None
        self._by_type: dict[str, TokenBucket] = {}
        self.set(0.0, {})

    def set(self, overall: float, by_type: Mapping[str, float]) -> None:
        """Put new limits in force; buckets whose rate stays keep their tokens."""
        if overall <= 0:
            self._overall = None
        elif self._overall is None or self._overall.rate != overall:
            self._overall = TokenBucket(overall, self._clock)
        wanted = {type: rate for type, rate in {**self._own, **by_type}.items() if rate > 0}
        self._by_type = {
            type: known
            if (known := self._by_type.get(type)) is not None and known.rate == rate
            else TokenBucket(rate, self._clock)
            for type, rate in wanted.items()
        }

    def limit(self, most: int) -> int:
        """How many of `most` may start now."""
        return most if self._overall is None else min(most, self._overall.available())

    def room(self) -> dict[str, int]:
        """What is left for each type that is limited."""
        return {type: bucket.available() for type, bucket in self._by_type.items()}

    def take(self, type: str) -> None:
        """One starts."""
        if self._overall is not None:
            self._overall.take()
        if (bucket := self._by_type.get(type)) is not None:
            bucket.take()

    def wait(self) -> float | None:
        """Seconds until a limit that is used up has room again; None when none is."""
        waits = [bucket.wait() for bucket in self._buckets() if bucket.available() < 1]
        return min(waits, default=None)

    def _buckets(self) -> Iterable[TokenBucket]:
        return self._by_type.values() if self._overall is None else (self._overall, *self._by_type.values())
