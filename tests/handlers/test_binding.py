"""From the arguments of a call to the positional arguments of a job, and back to the function."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs import context as contexts
from django_ojs.spec.errors import InvalidArgs
from django_ojs.storage.claimed_job import Claimed
from tests.handlers.annotated import by_module, by_name, by_quoted_name, plain
from tests.testapp.jobs import add, describe, echo, shout


class Run:
    """As much of a claimed job as a context looks at."""

    id = "an id"
    type = "test.binding"
    queue = "default"
    attempt = 3

    def __init__(self, *args: Any) -> None:
        self.args = list(args)


def context(*args: Any) -> ojs.JobContext:
    run: Any = Run(*args)
    job: Claimed = run
    return ojs.JobContext(job)


def middle(a: int, b: int = 2, c: int = 3, d: int = 4) -> tuple[int, ...]:
    return a, b, c, d


def rest(a: int, b: int = 2, *others: int) -> tuple[int, ...]:
    return a, b, *others


def positional_only(a: int, b: int = 2, /, c: int = 3) -> tuple[int, ...]:
    return a, b, c


SENTINEL = object()


def odd_default(a: int, b: Any = SENTINEL, c: int = 3) -> tuple[Any, ...]:
    return a, b, c


CALLS = [
    (middle, (1,), {}, [1]),
    (middle, (1, 20, 30, 40), {}, [1, 20, 30, 40]),
    (middle, (), {"a": 1}, [1]),
    (middle, (1,), {"d": 40}, [1, 2, 3, 40]),
    (middle, (1,), {"c": 30}, [1, 2, 30]),
    (middle, (), {"c": 30, "a": 1}, [1, 2, 30]),
    (middle, (1, 20), {"d": 40, "c": 30}, [1, 20, 30, 40]),
    (rest, (1,), {}, [1]),
    (rest, (1, 20, 30, 40), {}, [1, 20, 30, 40]),
    (rest, (), {"a": 1}, [1]),
    (rest, (), {"b": 20, "a": 1}, [1, 20]),
    (positional_only, (1,), {"c": 30}, [1, 2, 30]),
    (odd_default, (1,), {}, [1]),
    (odd_default, (), {"a": 1}, [1]),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "bound"), CALLS)
def test_keyword_arguments_go_to_their_places(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: list[Any]
) -> None:
    handler: Any = ojs.job("test.binding")(function)
    request = handler.request(*args, **kwargs)
    assert (request.type, request.args) == ("test.binding", bound)
    assert handler.run(context(*request.args)) == function(*args, **kwargs)


def test_a_default_that_is_passed_over_is_a_value_of_the_job() -> None:
    handler: Any = ojs.job("test.binding")(odd_default)
    assert handler.request(1, c=30).args == [1, SENTINEL, 30]
    with pytest.raises(InvalidArgs, match=r"args\[1\] is a object"):
        handler.options(priority=1).enqueue(1, c=30)


def test_a_keyword_that_only_a_positional_parameter_has_is_rejected() -> None:
    handler: Any = ojs.job("test.binding")(positional_only)
    with pytest.raises(InvalidArgs, match=r"The arguments do not fit test.binding"):
        handler.request(a=1)


def test_a_handler_of_any_arguments_takes_any() -> None:
    assert echo.request().args == []
    assert echo.request(1, "a", None).args == [1, "a", None]


def test_the_message_shows_the_signature_without_the_context() -> None:
    with pytest.raises(InvalidArgs) as caught:
        describe.request()  # type: ignore[call-arg]  # the missing argument is the point
    assert str(caught.value) == (
        "The arguments do not fit testapp.describe(greeting: 'str') -> 'str': "
        "missing a required argument: 'greeting'."
    )


def test_a_handler_is_still_the_function() -> None:
    assert add(1, c=3) == 14
    assert echo("a", 1) == ["a", 1]
    assert add.__name__ == "add"
    assert add.__doc__ is not None
    assert add.__doc__.startswith("Add up")
    assert add.__module__ == "tests.testapp.jobs"
    assert inspect.signature(add) == inspect.signature(add.function)
    assert not add.is_async


def test_an_async_handler_gives_its_coroutine() -> None:
    assert shout.is_async
    for made in (shout("psst"), shout.run(context("psst"))):
        assert inspect.iscoroutine(made)
        with pytest.raises(StopIteration) as end:
            made.send(None)
        assert end.value.value == "PSST"


@pytest.mark.parametrize("handler", [by_name, by_module, by_quoted_name])
def test_a_first_parameter_annotated_as_context_gets_the_context(handler: Any) -> None:
    assert handler.takes_context
    assert handler.request("hello").args == ["hello"]
    assert handler.run(context("hello")) == "hello 3"


def test_without_the_annotation_the_first_parameter_is_an_argument() -> None:
    assert not plain.takes_context
    assert plain.request("a", "b").args == ["a", "b"]


def test_a_handler_that_takes_a_context_is_called_inside_a_job_only() -> None:
    with pytest.raises(TypeError, match=r"testapp.describe takes a JobContext: outside a job"):
        describe("hello")
    running = context()
    contexts.enter(running)
    try:
        assert ojs.current_context() is running
        assert describe("hello") == "hello, attempt 3"
    finally:
        contexts.enter(None)
    assert ojs.current_context() is None
    assert describe.function(running, "hello") == "hello, attempt 3"


def test_the_arguments_of_a_request_are_not_the_caller_s_list() -> None:
    handler: Any = ojs.job("test.binding")(lambda *numbers: sum(numbers))
    numbers = (1, 2)
    request = handler.request(*numbers)
    request.args.append(3)
    assert handler.request(*numbers).args == [1, 2]
