"""Exceptions that a worker can work with: each can be described, and none fills the log.

A handler may raise anything: an exception whose `__str__` or `__class__` raises, or one whose
message is as long as what it has read.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

from django_ojs.spec.failure import MAX_MESSAGE_CHARACTERS, MAX_TYPE_CHARACTERS, clean

#: These descriptors of BaseException lead from an exception to its causes. A subclass may define
#: its own, which may raise.
_TRACEBACK: Final[Any] = vars(BaseException)["__traceback__"]
_CAUSE: Final[Any] = vars(BaseException)["__cause__"]
_CONTEXT: Final[Any] = vars(BaseException)["__context__"]
_SUPPRESSED: Final[Any] = vars(BaseException)["__suppress_context__"]
_MEMBERS: Final[Any] = vars(BaseExceptionGroup)["exceptions"]
_GROUP: Final = attrgetter("exceptions")
_NAME: Final[Any] = vars(type)["__qualname__"]
_MODULE: Final[Any] = vars(type)["__module__"]

#: The most exceptions of one chain, and members of a group, that are copied.
MAX_COPIES: Final = 20

_UNREADABLE: Final = "(the message could not be read)"


def describable(error: BaseException) -> BaseException:
    """Return an exception, or a copy of it if describing it raises."""
    return error if all(_text_of(each) is not None for each in _chain(error)) else _copy(error, {})


def shortened(error: BaseException) -> BaseException:
    """Return an exception, or a copy with shorter messages if one in its chain is too long."""
    return error if all(map(_is_short, _chain(error))) else _copy(error, {})


def without_messages(error: BaseException) -> BaseException:
    """Return a copy of an exception whose traceback prints no message (LOG_ERROR_MESSAGES)."""
    return _copy(error, {}, has_messages=False)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it follows from."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += _sources(each)


def _sources(error: BaseException) -> list[BaseException]:
    found = [_CAUSE.__get__(error), _CONTEXT.__get__(error)]
    return [*(each for each in found if each is not None), *_members(error)]


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _MEMBERS.__get__(error)
    return members


def _text_of(error: BaseException) -> str | None:
    """Return what a traceback prints of an exception, or None if it cannot be described."""
    try:
        # The worker, formatters of tracebacks and error trackers read these attributes, so they
        # must be the real ones, and not properties of its class.
        members, said = _members(error), str(error)
        is_itself = (
            error.__class__ is type(error)
            and error.__traceback__ is _TRACEBACK.__get__(error)
            and error.__cause__ is _CAUSE.__get__(error)
            and error.__context__ is _CONTEXT.__get__(error)
            and error.__suppress_context__ is _SUPPRESSED.__get__(error)
            and (not members or [*map(id, _GROUP(error))] == [*map(id, members)])
            and len(said) == str.__len__(said)
        )
        bool(error)
        notes = getattr(error, "__notes__", None) or ()
        text = "\n".join([said, *map(str, notes), type(error).__qualname__])
        return text if is_itself else None
    except BaseException:
        return None


def _is_short(error: BaseException) -> bool:
    text = _text_of(error)
    return text is not None and len(text) <= MAX_MESSAGE_CHARACTERS


def _copy(
    error: BaseException, made: dict[int, BaseException], *, has_messages: bool = True
) -> BaseException:
    """Return an exception that prints as another one does, without what is too long.

    `made` has the copies so far. Only the first exceptions of a chain are copied.
    """
    message = _UNREADABLE if has_messages else ""
    if has_messages and _text_of(error) is not None:
        message = clean(str(error), MAX_MESSAGE_CHARACTERS)
    kind = type(error)
    name = clean(str(_NAME.__get__(kind)), MAX_TYPE_CHARACTERS)
    names = {"__qualname__": name, "__module__": _module(kind)}
    copy: BaseException
    members = [_copy(each, {}, has_messages=has_messages) for each in _members(error)[:MAX_COPIES]]
    if members:
        copy = type(name, (BaseExceptionGroup,), names)(message, members)
    else:
        copy = type(name, (Exception,), names)(message)
    made[id(error)] = copy
    copy.__traceback__ = _TRACEBACK.__get__(error)
    copy.__cause__ = _copied(_CAUSE.__get__(error), made, has_messages)
    copy.__context__ = _copied(_CONTEXT.__get__(error), made, has_messages)
    copy.__suppress_context__ = _SUPPRESSED.__get__(error)
    return copy


def _copied(
    error: BaseException | None, made: dict[int, BaseException], has_messages: bool
) -> BaseException | None:
    if error is None or id(error) in made:
        return None if error is None else made[id(error)]
    return _copy(error, made, has_messages=has_messages) if len(made) < MAX_COPIES else None


def _module(kind: type[BaseException]) -> str:
    module = _MODULE.__get__(kind)
    return module if type(module) is str else ""
