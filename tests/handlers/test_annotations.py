"""What a handler's annotations say where it is declared; no `from __future__` here."""

import datetime
import enum
import pathlib
import typing
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ForwardRef

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured

import django_ojs as ojs
from django_ojs.extensions.payloads.parameter_kinds import ParameterKind, ParameterKinds
from tests.cases import together


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Row(typing.TypedDict):
    name: str


class Point(typing.NamedTuple):
    x: int


class Sized(typing.Protocol):
    size: int


def returning(annotation: Any) -> Callable[[], Any]:
    """Return a function that is annotated so."""

    def function() -> Any: ...

    function.__annotations__["return"] = annotation
    return function


NOT_JSON = [
    datetime.datetime,
    "datetime.datetime",
    datetime.date | None,
    "Decimal | None",
    typing.Optional[Decimal],  # noqa: UP045  # the other spelling
    Decimal | datetime.timedelta,
    set[str],
    "frozenset[int]",
    bytes,
    pathlib.Path,
    Colour,
    User,
    Iterator[int],
    Annotated[Decimal, "money"],
]

MAY_BE_JSON = [
    None,
    "None",
    Any,
    "Any",
    object,
    str,
    "dict[str, Any]",
    list[Decimal],  # Only the outermost type is judged.
    Mapping[str, int],
    int | Decimal,
    Level,
    Row,
    Point,
    Sized,
    typing.Literal["a", "b"],
    typing.NoReturn,
    typing.TypeVar("T"),
    Annotated[str, "name"],
    "Missing",
    "Missing | None",
    "not an expression",
    ForwardRef("Missing"),
]


@together("annotation", NOT_JSON, ids=str)
def test_a_result_that_cannot_be_stored_is_rejected_at_the_decorator(annotation: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"is annotated to return .+ which is not JSON"):
        ojs.job("test.declared")(returning(annotation))


@together("annotation", MAY_BE_JSON, ids=str)
def test_a_result_that_may_be_json_is_accepted(annotation: Any) -> None:
    ojs.job("test.declared")(returning(annotation))
    ojs.handlers.registry.remove("test.declared")


def test_a_context_may_set_another_result_than_is_returned() -> None:
    def function(ctx: ojs.JobContext) -> datetime.datetime: ...  # type: ignore[empty-body]

    ojs.job("test.declared")(function)


def test_the_annotation_of_a_function_inside_a_decorator_says_nothing() -> None:
    def inner() -> datetime.datetime: ...  # type: ignore[empty-body]

    outer = returning(datetime.datetime)
    outer.__wrapped__ = inner  # type: ignore[attr-defined]
    ojs.job("test.declared")(outer)


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@together("function", [generator, async_generator])
def test_a_generator_is_no_handler(function: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'test\.declared' is a generator"):
        ojs.job("test.declared")(function)


@together("name", ["JobContext", "ojs.JobContext"])
def test_a_name_that_nothing_has_imported_is_known_by_its_last_part(name: str) -> None:
    # From Python 3.14 on, `inspect.signature` returns such ForwardRefs, or raises NameError.
    def function(ctx: Any, source: Any, other: Any) -> None: ...

    function.__annotations__ |= {
        "ctx": ForwardRef(name),
        "source": ForwardRef("ojs.PayloadStream"),
        "other": ForwardRef("Missing"),
    }
    made = ojs.job("test.declared")(function)
    assert made.takes_context
    kinds = ParameterKinds(made.parameters.values())
    assert kinds.at(0) is ParameterKind.STREAM
    assert kinds.at(1) is ParameterKind.VALUE


def test_a_context_that_nothing_has_imported_must_be_the_first() -> None:
    def function(source: Any, ctx: Any) -> None: ...

    function.__annotations__["ctx"] = ForwardRef("JobContext")
    with pytest.raises(ImproperlyConfigured, match="must be the first parameter"):
        ojs.job("test.declared")(function)
