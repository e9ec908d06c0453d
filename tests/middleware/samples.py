"""Middleware that the settings of tests name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_ojs.middleware import EnqueueNext
from django_ojs.spec.envelope import Envelope

NOT_CALLABLE = "a string"


class Note:
    """Write its name, in order, into meta and on the way back into a list."""

    name = "note"
    back: list[str] = []

    def __call__(self, envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        seen: Any = envelope.meta.setdefault("seen", [])
        seen.append(self.name)
        try:
            return proceed(envelope)
        finally:
            self.back.append(self.name)


class First(Note):
    name = "first"


class Second(Note):
    name = "second"


class Third(Note):
    name = "third"


class Outer:
    """Wrap the run of a handler and write down when."""

    name = "outer"
    calls: list[str] = []

    def __call__(self, context: Any, proceed: Callable[[], Any]) -> Any:
        self.calls.append(f"{self.name} before")
        try:
            return proceed()
        finally:
            self.calls.append(f"{self.name} after")


class Inner(Outer):
    name = "inner"


class NeedsAnArgument:
    def __init__(self, needed: str) -> None: ...


def passing(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    return proceed(envelope)


async def asynchronous(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    return proceed(envelope)


class Asynchronous:
    async def __call__(self, envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        return proceed(envelope)
