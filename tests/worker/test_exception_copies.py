"""What a handler may raise, and what a worker makes of it: an outcome, and a log of some lines."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from django_ojs.models import Job
from django_ojs.spec.failure import Failure, Retry
from django_ojs.worker.completer import Completer
from django_ojs.worker.exception_copies import describable, shortened
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import JobsInFlight
from django_ojs.worker.job_log import JobLog
from tests import factories
from tests.cases import together
from tests.worker.parts import Outcomes, run_of

LONG = 5_000_000


class FaultyText(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


class FaultyClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise KeyboardInterrupt


class FaultyTruth(Exception):
    def __bool__(self) -> bool:
        raise RecursionError


class FaultyChain(Exception):
    @property
    def __context__(self) -> Any:  # type: ignore[override]
        raise ValueError

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise ValueError


class FaultyAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise GeneratorExit(name)


class FaultyNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise MemoryError


class FaultyMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__name__", "__module__"):
            raise OSError
        return super().__getattribute__(name)


class FaultyName(Exception, metaclass=FaultyMeta):
    pass


class TextOfAnotherType(Exception):
    def __str__(self) -> str:
        return 42  # type: ignore[return-value]


class Text(str):
    def __len__(self) -> int:
        raise SystemExit


class FaultyTextClass(Exception):
    def __str__(self) -> str:
        return Text("text")


class ClassOfAnother(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return BaseExceptionGroup


class CauseOfAnotherType(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        return "a text"


class TracebackOfAnotherType(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        return 42


class FaultySuppression(Exception):
    @property
    def __suppress_context__(self) -> Any:  # type: ignore[override]
        raise ValueError


FAULTY: list[type[Exception]] = [
    FaultyTextClass,
    ClassOfAnother,
    CauseOfAnotherType,
    TracebackOfAnotherType,
    FaultySuppression,
    FaultyText,
    FaultyClass,
    FaultyTruth,
    FaultyChain,
    FaultyAttributes,
    FaultyNotes,
    FaultyName,
    TextOfAnotherType,
]


def name_of(kind: type) -> str:
    return type.__repr__(kind).rpartition(".")[2].strip("'>")


def raised(error: BaseException, place: str) -> BaseException:
    """Return an exception that was raised, with a faulty one at a place of its chain."""
    try:
        if place == "alone":
            raise error
        if place == "a member":
            raise ExceptionGroup("group", [ValueError("plain"), error])  # type: ignore[list-item]
        try:
            raise error
        except BaseException as first:
            if place == "the cause":
                raise ValueError("plain") from first
            raise ValueError("plain")  # noqa: B904  # The context is what this is about.
    except BaseException as found:
        return found


PLACES = ["alone", "the cause", "the context", "a member"]


def is_replaced(kind: type[Exception]) -> bool:
    error = kind("text")
    return describable(error) is not error


def test_an_exception_that_cannot_be_described_is_replaced() -> None:
    # Without such an exception in the frame of the test, of which pytest prints the variables.
    assert [is_replaced(kind) for kind in FAULTY] == [True] * len(FAULTY)


@together(("kind", "place"), [(kind, place) for kind in FAULTY for place in PLACES])
def test_every_exception_can_be_described(kind: Any, place: str) -> None:
    error = describable(raised(kind("text"), place))
    failure = Failure.from_exception(error, keep_class=True)
    expected = {"alone": name_of(kind), "a member": "ExceptionGroup"}.get(place, "ValueError")
    assert failure.type == expected
    printed = "".join(traceback.format_exception(error))
    assert "in raised" in printed
    assert name_of(kind) in printed
    assert not isinstance(error, LookupError)
    assert describable(error) is error


class FaultyGroup(ExceptionGroup[ValueError]):
    @property
    def exceptions(self) -> Any:
        raise ValueError


def test_a_group_whose_members_cannot_be_read_is_replaced() -> None:
    copy = describable(FaultyGroup("group", [ValueError("plain")]))
    assert isinstance(copy, BaseExceptionGroup)
    assert [str(each) for each in copy.exceptions] == ["plain"]


def test_an_exception_that_is_no_group_may_have_exceptions_of_its_own() -> None:
    error = ValueError("several")
    error.exceptions = [KeyError("a")]  # type: ignore[attr-defined]  # as some packages have
    assert describable(error) is error


@together("place", PLACES)
def test_an_exception_is_itself_as_a_rule(place: str) -> None:
    for error in (
        ValueError("no"),
        ValueError(mark_safe("<b>no</b>")),
        ValidationError(gettext_lazy("no")),
        Retry("later", 5),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
    ):
        if place != "a member" or isinstance(error, Exception):
            found = raised(error, place)
            assert describable(found) is found
            assert shortened(found) is found


def noted() -> Exception:
    error = ValueError("short")
    error.add_note("x" * LONG)
    return error


@together("place", PLACES)
@together("make", [lambda: ValueError("x" * LONG), lambda: KeyError("x" * LONG, "y"), noted])
def test_a_traceback_in_the_log_is_short(place: str, make: Any) -> None:
    found = raised(make(), place)
    error = shortened(found)
    printed = "".join(traceback.format_exception(error))
    assert len(printed) < 50_000
    assert "in raised" in printed
    # The job keeps what the exception says about it.
    assert describable(found) is found


def test_a_chain_that_is_long_or_a_circle_is_copied_in_part() -> None:
    first = error = ValueError("x" * LONG)
    for _ in range(3000):
        error.__context__ = ValueError("x")
        error = error.__context__  # type: ignore[assignment]
    error.__context__ = first
    assert len("".join(traceback.format_exception(shortened(first)))) < 50_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_job_fails_by_whatever_its_handler_raises(
    is_async: bool, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes, in_flight = Outcomes(), JobsInFlight()
    executor = Executor(1, outcomes)
    completer = Completer(
        factories.WORKER, in_flight, JobLog(), lambda seconds: None, lambda queues: None
    )
    jobs = [factories.active() for _ in FAULTY]
    kinds = list(FAULTY)

    def function() -> None:
        raise raised(kinds.pop(0)("text"), place)

    async def coroutine() -> None:
        function()

    runs = [run_of(coroutine if is_async else function, job=job) for job in jobs]
    in_flight.add(runs)
    executor.submit(runs)
    with caplog.at_level(logging.INFO, "django_ojs"):
        for _ in runs:
            completer.handler_ended(*outcomes.next())
        executor.close()
        assert completer.close(60)
    assert {factories.read(job.id).state for job in jobs} == {"retryable"}
    assert sum("failed in" in each.getMessage() for each in caplog.records) == len(FAULTY)


def test_the_log_line_of_a_long_message_is_short(caplog: pytest.LogCaptureFixture) -> None:
    error = raised(ValueError("x" * LONG), "alone")
    job = Job(state="discarded", attempt=3, max_attempts=3, dead_letter=True)
    run = run_of(lambda: None)
    JobLog().failed(run, Failure.from_exception(error), job, 0.5, error)
    JobLog().failed_after_commit(run, error)
    assert len(caplog.text) < 50_000
    assert "in raised" in caplog.text
