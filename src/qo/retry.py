"""How long to wait before the next attempt. Pure; `lifecycle` asks, nobody else decides."""

import math
from typing import Literal, get_args

import msgspec

from qo.errors import ConfigError

Preset = Literal["default", "a", "b", "d", "e"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exponential backoff with jitter. Seconds throughout; the n-th failure waits initial * multiplier ** (n - 1)."""

    initial: float = 5.0
    multiplier: float = 2.0
    maximum: float = 6 * 3600.0
    jitter: float = 0.2
    timeout_growth: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise ConfigError(f"RetryPolicy.{name} must be a number of at least 0, not {value!r}")
        if self.jitter > 1:
            raise ConfigError(f"RetryPolicy.jitter is a share of the delay from 0 to 1, not {self.jitter!r}")
        if self.multiplier < 1 or self.timeout_growth < 1:
            raise ConfigError("RetryPolicy.multiplier and timeout_growth must be at least 1: delays never shrink")

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after that many failures; `chance` (0 to 1) places it inside the jitter."""
        base = self._grown(self.initial, self.multiplier, failures - 1, self.maximum)
        return base * (1 + self.jitter * (2 * chance - 1))

    def timeout(self, timeout: float | None, failures: int) -> float | None:
        """The timeout of the attempt that follows that many failures."""
        if timeout is None or self.timeout_growth == 1.0:
            return timeout
        return self._grown(timeout, self.timeout_growth, failures, max(timeout, 7 * 86_400.0))

    @staticmethod
    def _grown(start: float, factor: float, times: int, most: float) -> float:
        if start <= 0 or times <= 0 or most <= start:
            return min(start, most)
        # factor ** times overflows a float after some hundred failures, so the logarithms are compared first.
        if times * math.log(factor) >= math.log(most / start):
            return most
        try:
            return start * factor**times
        except OverflowError:  # a start so small that the quotient above was infinite
            return most


# Named after the source documents, so that a user who comes from one of them keeps its timing.
PRESETS: dict[Preset, RetryPolicy] = {
    "default": RetryPolicy(),
    "a": RetryPolicy(initial=1, multiplier=2, maximum=60, jitter=0.25),
    "b": RetryPolicy(initial=0, multiplier=1, jitter=0, timeout_growth=1.5),
    "d": RetryPolicy(initial=10, multiplier=4, maximum=6 * 3600, jitter=0.2),
    "e": RetryPolicy(initial=5, multiplier=2, jitter=0),
}


def preset(name: str) -> RetryPolicy:
    """The policy with that name."""
    policy = PRESETS.get(name)  # pyright: ignore[reportArgumentType, reportCallIssue] - an unknown name answers None
    if policy is None:
        raise ConfigError(f"no retry preset {name!r}; there are {', '.join(get_args(Preset))}")
    return policy
