"""From what was said of a task, its type, its level and its queue to what holds: options resolved once, used often.

`calls` and `queue` ask the Planner; a Plan makes the records. The order of precedence is that of `settings`.
"""

import sys
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import msgspec
from msgspec import UNSET

from qo import lifecycle
from qo.clock import Clock
from qo.handlers import Handler, Registry
from qo.options import NO_OPTIONS, OF_HANDLERS, Options
from qo.ordering import Priority
from qo.settings import Settings, level_defaults, resolve
from qo.task import Task, check_name

_RESOLVED = ("priority", "max_retries", "timeout", "retry", "key_window")
"""What levels and settings have a say in."""
_OWN = ("requires", "tags", "key")


class Plan(msgspec.Struct, frozen=True):
    """All that tasks submitted in one way have in common."""

    queue: str
    fixed: dict[str, Any]
    """Arguments of `lifecycle.submit`."""
    delay: timedelta | None
    run_after: datetime | None

    def task(self, raw: msgspec.Raw, now: datetime, clock: Clock) -> Task:
        """A fresh record for that input."""
        run_after = self.run_after if self.delay is None else now + self.delay
        return lifecycle.submit(
            id=clock.new_id(), now=now, input=raw, run_after=run_after, trace=current_trace(), **self.fixed
        )


class Planner:
    """Resolves options for one queue and remembers the answers."""

    def __init__(
        self, queue: str, settings: Settings, registry: Registry, defaults: Options, levels: str | None
    ) -> None:
        level_defaults(levels, "medium")
        self._queue = queue
        self._settings = settings
        self._registry = registry
        self._defaults = defaults
        self._levels = levels
        self._types: dict[str, Options] = {}
        self._plans: dict[str, Plan] = {}
        self.version = 0
        """Grows when what was planned before no longer holds."""

    def plan(self, type: str, options: Options = NO_OPTIONS, argument: Options = NO_OPTIONS) -> Plan:
        """What holds for a task of that type: `argument` goes before `options`, which goes before the rest."""
        base = self._plans.get(type)
        if base is None:
            base = self._plans[type] = self._resolve(type, NO_OPTIONS, NO_OPTIONS)
        if options is NO_OPTIONS and argument is NO_OPTIONS:
            return base
        said = options.merged(argument)
        if any(getattr(said, name) is not UNSET for name in _RESOLVED):
            return self._resolve(type, options, argument)
        # A key, a delay or tags, different for each task: nothing below them can change what they say.
        own = {name: value for name in _OWN if (value := getattr(said, name)) is not UNSET}
        if said.delay is UNSET and said.run_after is UNSET:
            return Plan(base.queue, base.fixed | own, base.delay, base.run_after)
        return Plan(base.queue, base.fixed | own, *_timing(said))

    def say(self, type: str, options: Options) -> Options:
        """Add to what is said of a type, whether or not it has a handler here."""
        said = self._types[type] = self._types.get(type, NO_OPTIONS).merged(options)
        if handler := self._registry.find(type):
            handler.options = handler.options.merged(said)
        self.changed()
        return said

    def changed(self) -> None:
        """A handler came or changed: plan anew."""
        self._plans.clear()
        self.version += 1

    def _resolve(self, type: str, options: Options, argument: Options) -> Plan:
        handler: Handler[..., Any] | None = self._registry.find(type)
        of_type = handler.options if handler else self._types.get(type, NO_OPTIONS)
        steps = (argument, options, of_type, self._defaults)

        def said_by(name: str, level: object = UNSET) -> dict[str, Any]:
            values = [getattr(step, name) for step in steps]
            return {
                "argument": values[0],
                "task": values[1],
                "type": values[2],
                "level": level,
                "queue": values[3],
                "settings": self._settings,
            }

        priority: Priority = resolve("priority", **said_by("priority")).value
        level = level_defaults(self._levels, priority)
        fixed: dict[str, Any] = {
            "type": check_name("type", type),
            "queue": self._queue,
            "priority": priority,
            "max_retries": resolve(
                "max_retries", **said_by("max_retries", level.max_retries if level else UNSET)
            ).value,
            "timeout": resolve("timeout", **said_by("timeout", level.timeout if level else UNSET)).value,
            "retry": resolve("retry", **said_by("retry")).value,
            "key_window": resolve("key_window", **said_by("key_window")).value,
        }
        if handler is None:
            # The handler is elsewhere and may have options of its own, which the worker that has it will follow.
            fixed["unsaid"] = tuple(
                name for name in OF_HANDLERS if all(getattr(step, name) is UNSET for step in steps[:3])
            )
        for name in _OWN:
            if value := next((value for step in steps if (value := getattr(step, name)) is not UNSET), None):
                fixed[name] = value
        # When to run is one thing said in two ways: the first step that says either wins.
        timing = next((step for step in steps if step.delay is not UNSET or step.run_after is not UNSET), NO_OPTIONS)
        return Plan(self._queue, fixed, *_timing(timing))


def _timing(said: Options) -> tuple[timedelta | None, datetime | None]:
    return timedelta(seconds=said.delay) if said.delay else None, said.run_after or None


def current_trace() -> str | None:
    """The W3C traceparent of the current OpenTelemetry span, if the program uses OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    propagate: Any = import_module("opentelemetry.propagate")
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent")
