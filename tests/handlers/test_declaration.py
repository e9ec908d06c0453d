"""`@ojs.job`: what is rejected where a handler is declared, before any job of its type exists."""

from __future__ import annotations

import functools
import pickle
import traceback
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Optional

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidJobType, InvalidRequest, InvalidRetryPolicy, OJSError
from tests.cases import together
from tests.client.bad_values import NAIVE, OPTIONS, TYPES, Bad
from tests.testapp.jobs import add, echo


def declare(function: Any, **options: Any) -> Any:
    """Declare a handler of the type "test.declared"."""
    return ojs.job("test.declared", **options)(function)


@together("bad", OPTIONS, ids=lambda bad: bad.name)
def test_a_default_that_no_job_may_have_is_rejected(bad: Bad) -> None:
    with pytest.raises(OJSError) as caught:
        ojs.job("test.declared", **bad.options)
    if "id" in bad.options:
        assert str(caught.value) == "id must be set for each job, not for its type."
    else:
        assert type(caught.value) is bad.error
        assert str(caught.value).startswith(bad.says)
    assert handlers.get_handler("test.declared") is None
    assert "test.declared" not in handlers.job_types()


def test_an_id_is_nothing_that_all_jobs_of_a_type_could_have() -> None:
    with pytest.raises(InvalidRequest, match="id must be set for each job"):
        ojs.job("test.declared", id=ids.uuid7())


@together(("type_", "says"), TYPES)
def test_a_type_follows_the_naming_rule(type_: Any, says: str) -> None:
    with pytest.raises(InvalidJobType) as caught:
        ojs.job(type_)
    assert str(caught.value).startswith(says)


def hint_of(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the end of the traceback, as a user sees it."""
    return traceback.format_exception(caught.value)[-1]


def test_the_bare_decorator_shows_how_it_is_written() -> None:
    decorator: Any = ojs.job
    with pytest.raises(InvalidJobType) as caught:
        decorator(hint_of)
    assert hint_of(caught) == 'Hint: Write @ojs.job("app.action").\n'


@together(
    ("option", "says"),
    [
        ({"countdown": 5}, "countdown is not an option of a job."),
        ({"countdown": 5}, "is here: scheduled_at=timedelta(seconds=60)."),
        ({"max_retries": 5}, "which counts the first run"),
        ({"prioriy": 5}, "Did you mean priority?"),
    ],
)
@together("way", [ojs.job, ojs.enqueue, add.options])
def test_a_keyword_of_another_queue_or_a_misspelt_one_gets_what_helps(
    way: Any, option: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        way(*(() if way == add.options else ("test.declared",)), **option)
    assert says in "".join(traceback.format_exception(caught.value))


def test_a_hint_survives_pickling_and_is_shown_once() -> None:
    error = InvalidRequest("wrong", hint="first")
    error.hint = "second"
    again = pickle.loads(pickle.dumps(error))
    assert (again.hint, again.__notes__) == ("second", ["Hint: second"])
    error.hint = None
    assert error.__notes__ == []


def test_a_context_that_would_not_be_passed_is_rejected() -> None:
    def second(a: int, ctx: ojs.JobContext) -> None: ...

    def twice(ctx: ojs.JobContext, other: ojs.JobContext) -> None: ...

    def optional(ctx: ojs.JobContext | None = None) -> None: ...

    def old_optional(ctx: Optional[ojs.JobContext]) -> None: ...  # noqa: UP045  # as users write it

    for function, says in (
        (second, "as 'ctx', which must be the first parameter"),
        (twice, "as 'other', which must be the first parameter"),
        (optional, "as 'ctx', which must be annotated with JobContext alone"),
        (old_optional, "as 'ctx', which must be annotated with JobContext alone"),
    ):
        with pytest.raises(ImproperlyConfigured, match=says):
            declare(function)
    assert handlers.get_handler("test.declared") is None


class Mailer:
    def send(self, to: str) -> None: ...

    @classmethod
    def send_all(cls, to: str) -> str:
        return to


@pytest.mark.parametrize("method", [Mailer.send, Mailer().send])
def test_a_method_is_rejected(method: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"is the method Mailer\.send: a worker has no"):
        declare(method)


def test_a_class_method_and_a_function_with_self_are_functions() -> None:
    assert declare(Mailer.send_all)("a") == "a"
    handlers.registry.remove("test.declared")
    assert declare(lambda self: self).request(1).args == [1]


@pytest.mark.django_db
def test_an_id_of_another_version_gets_a_hint() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ojs.get_job(uuid.uuid4())
    assert "ojs.new_id()" in hint_of(caught)


@pytest.mark.parametrize(
    "create", [lambda: Job.objects.create(type="a"), lambda: Job.objects.bulk_create([Job()])]
)
def test_a_job_is_not_a_row_to_create(create: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"call handler\.enqueue\(\.\.\.\), ojs\.enqueue"):
        create()


def test_the_limits_of_names_are_the_settings() -> None:
    with (
        override_settings(OJS={"MAX_JOB_TYPE_BYTES": 5}),
        pytest.raises(InvalidJobType, match="type must be at most 5 bytes long"),
    ):
        ojs.job("test.declared")


def test_a_parameter_that_a_list_of_arguments_cannot_fill_is_rejected() -> None:
    def keyword_only(a: int, *, urgent: bool) -> None: ...

    def keywords(a: int, **rest: int) -> None: ...

    for function, name in ((keyword_only, "urgent"), (keywords, "rest")):
        with pytest.raises(
            ImproperlyConfigured, match=f"'test.declared' has the keyword-only parameter '{name}'"
        ):
            declare(function)
    assert handlers.get_handler("test.declared") is None


def test_a_keyword_only_parameter_with_a_default_is_the_function_s_own() -> None:
    def handler(a: int, *, dry_run: bool = False) -> tuple[int, bool]:
        return a, dry_run

    made = declare(handler)
    assert made(1, dry_run=True) == (1, True)
    assert made.request(1).args == [1]
    with pytest.raises(OJSError, match="unexpected keyword argument 'dry_run'"):
        made.request(1, dry_run=True)


def test_an_atomic_handler_cannot_be_async() -> None:
    async def handler() -> None: ...

    with pytest.raises(ImproperlyConfigured, match=r"'test.declared' is async def and atomic=True"):
        declare(handler, atomic=True)
    assert handlers.get_handler("test.declared") is None


def test_a_type_has_one_handler() -> None:
    def first() -> None: ...

    def second() -> None: ...

    made = declare(first)
    with pytest.raises(ImproperlyConfigured, match=r"'test.declared' has two handlers") as caught:
        declare(second, queue="other")
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)
    assert handlers.get_handler("test.declared") is made
    assert made.defaults.queue is None


def test_a_module_that_is_imported_again_replaces_its_handlers() -> None:
    def version(number: int) -> Callable[[], int]:
        def handler() -> int:
            return number

        return handler

    declare(version(1), queue="old")
    again = declare(version(2), queue="new")
    assert handlers.get_handler("test.declared") is again
    assert again is not None
    assert again.function() == 2
    assert again.defaults.queue == "new"


class RoutineWithoutName:
    """As `functools.partial` is from Python 3.14 on: `inspect` counts it as a routine."""

    def __get__(self, instance: object, owner: object = None) -> RoutineWithoutName:
        return self

    def __call__(self) -> None: ...


NO_FUNCTIONS = [
    4711,
    None,
    "tests.handlers",
    int,
    functools.partial(max, 1),
    functools.partialmethod(max, 1),
    RoutineWithoutName(),
    add,
    echo,
]


@together("thing", NO_FUNCTIONS)
def test_a_handler_is_a_function(thing: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'test.declared' must be a function"):
        declare(thing)


def test_what_is_declared_is_known_and_can_be_forgotten() -> None:
    made = declare(lambda: None)
    assert handlers.get_handler("test.declared") is made
    assert "test.declared" in handlers.job_types()
    assert handlers.job_types() == sorted(handlers.job_types())
    assert repr(made) == "<Handler test.declared>"
    handlers.registry.remove("test.declared")
    handlers.registry.remove("test.declared")
    assert handlers.get_handler("test.declared") is None


def made_of(**values: Any) -> ojs.RetryPolicy:
    return ojs.RetryPolicy(**values)


@together(
    ("make", "says"),
    [
        (lambda: ojs.RetryPolicy(max_attempts=-1), "retry.max_attempts must be"),
        (lambda: ojs.RetryPolicy(initial_interval=0), "retry.initial_interval must be greater"),
        (lambda: ojs.RetryPolicy(initial_interval=float("nan")), "retry.initial_interval must"),
        (lambda: ojs.RetryPolicy(max_interval=10**400), "retry.max_interval must be a number"),
        (lambda: ojs.RetryPolicy(max_interval="soon"), "retry.max_interval must be an ISO 8601"),
        (lambda: ojs.RetryPolicy(backoff_coefficient=0.5), "retry.backoff_coefficient must"),
        (lambda: ojs.RetryPolicy(non_retryable_errors=("",)), "retry.non_retryable_errors must"),
        (lambda: made_of(extra=4711), "retry.extra must be a mapping"),
        (lambda: made_of(jitter="yes"), "retry.jitter must be a boolean"),
    ],
)
def test_a_policy_is_checked_where_it_is_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidRetryPolicy) as caught:
        make()
    assert str(caught.value).startswith(says)


@together("delay", [timedelta(seconds=-1), -4711, float("nan"), 1e300, "soon", NAIVE, []])
def test_a_retry_with_an_impossible_delay_is_rejected(delay: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^delay must") as caught:
        ojs.Retry("later", delay=delay)
    assert "4711" not in str(caught.value)
