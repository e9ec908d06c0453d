"""The operator of a change, and how extensions are told what the operator did.

An entry point for operators (the admin, the HTTP API, `manage.py ojs`) names the operator with
`acting`; the operations call `acted` in the transaction of their change. Code of a project has no
operator, and extensions are not told of its changes: this would slow down a job that cancels many.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final

from django_ojs.extension import Act, Actor
from django_ojs.hooks import registry

#: The most characters of a name. The rest is cut off.
MAX_NAME: Final = 255

_current: Final[ContextVar[Actor | None]] = ContextVar("django_ojs_actor", default=None)


@contextmanager
def acting(actor: Actor | None) -> Iterator[None]:
    """Name the operator of the changes within the block."""
    token = begin(actor)
    try:
        yield
    finally:
        end(token)


def begin(actor: Actor | None) -> Token[Actor | None]:
    """Name the operator until `end`, as `acting` does, for code that each request runs."""
    return _current.set(actor)


def end(token: Token[Actor | None]) -> None:
    """Restore the operator who was named before `begin`."""
    _current.reset(token)


def name() -> str | None:
    """Return the name of the operator; None for code of a project."""
    actor = _current.get()
    return None if actor is None else actor.name


@dataclass(frozen=True, slots=True)
class Acted:
    """An act that extensions were told of.

    An operation of many transactions tells of it first, and adds its result with `complete`.
    """

    _completions: tuple[Callable[[Mapping[str, Any]], object], ...] = ()

    def complete(self, **detail: Any) -> None:
        """Add what the operation has done to the details."""
        for completion in self._completions:
            completion(detail)


_NO_ACT: Final = Acted()


def acted(
    action: str,
    object_id: object = "",
    *,
    changes: Mapping[str, tuple[Any, Any]] | None = None,
    object_type: str = "",
    **detail: Any,
) -> Acted:
    """Tell the extensions what the operator does, in the caller's transaction.

    Without an operator, nothing is told. `changes` has the old and the new value of each field. If
    `object_type` is not given, it is the first word of `action`.
    """
    actor = _current.get()
    if actor is None or not registry.acted:
        return _NO_ACT
    act = Act(
        actor=actor,
        action=action,
        object_type=object_type or action.partition(".")[0],
        object_id=str(object_id),
        changes=changes or {},
        detail=detail,
    )
    completions = [hook(act) for hook in registry.acted]
    return Acted(tuple(each for each in completions if each is not None))


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the members that differ, for `changes`. A member that is missing is None."""
    names = dict.fromkeys([*old, *new])
    pairs = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the members of nested objects, by names with dots."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def printable(name: str) -> str:
    """Return a name that is safe to show in a row or in a line of the log.

    A user model of the project may allow any characters in a name.
    """
    return "".join(each if each.isprintable() else "?" for each in name[:MAX_NAME])


def log_fields(
    event_type: str,
    *,
    principal: str,
    source_ip: str,
    correlation_id: str,
    outcome: str,
    detail: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the attributes of a line of the log about an act or a denied request.

    ojs-security §11.2 names them; the formatter adds the time.
    """
    return {
        "event_type": event_type,
        "principal": principal,
        "source_ip": source_ip,
        "correlation_id": correlation_id,
        "outcome": outcome,
        "detail": detail,
    }
