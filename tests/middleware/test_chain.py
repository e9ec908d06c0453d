"""The operations on a chain, the ways to name a middleware, and the settings that begin one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_ojs.middleware import EnqueueChain, enqueue_chain, execution_chain
from tests.cases import together
from tests.middleware.samples import First, Inner, Outer, Second, Third, passing

HERE = "tests.middleware.samples"
FIRST, SECOND, THIRD = (f"{HERE}.{name}" for name in ("First", "Second", "Third"))


def chain(*paths: str) -> EnqueueChain:
    return EnqueueChain("ENQUEUE_MIDDLEWARE", paths)


def test_an_empty_chain_holds_nothing() -> None:
    assert chain().names == []
    assert list(chain()) == []
    assert len(chain()) == 0


def test_a_chain_can_be_looked_at() -> None:
    made = chain(FIRST, f"{HERE}.passing")
    assert made.names == [FIRST, f"{HERE}.passing"]
    first, second = made
    assert type(first) is First
    assert second is passing


def test_add_appends_and_prepend_puts_first() -> None:
    made = chain(SECOND)
    made.add(THIRD)
    made.prepend(FIRST)
    made.add(passing)
    made.prepend(passing)
    assert made.names == [f"{HERE}.passing", FIRST, SECOND, THIRD, f"{HERE}.passing"]


@together("existing", [SECOND, Second])
@together("new", [First, FIRST, First()])
def test_insert_before_puts_right_before(existing: Any, new: Any) -> None:
    made = chain(THIRD, SECOND, THIRD)
    made.insert_before(existing, new)
    assert made.names == [THIRD, FIRST, SECOND, THIRD]


@together("existing", [SECOND, Second])
@together("new", [First, FIRST, First()])
def test_insert_after_puts_right_after(existing: Any, new: Any) -> None:
    made = chain(THIRD, SECOND, THIRD)
    made.insert_after(existing, new)
    assert made.names == [THIRD, SECOND, FIRST, THIRD]


def test_an_instance_and_a_function_are_found_by_themselves() -> None:
    one, other = First(), First()
    made = chain()
    made.add(one)
    made.add(passing)
    made.add(other)
    made.remove(other)
    assert list(made) == [one, passing]
    made.insert_before(passing, Second)
    made.insert_after(one, Third)
    assert made.names == [FIRST, THIRD, SECOND, f"{HERE}.passing"]
    made.remove(passing)
    made.remove(one)
    assert made.names == [THIRD, SECOND]


def test_the_same_middleware_may_stand_there_twice_and_goes_one_by_one() -> None:
    made = chain(FIRST, SECOND, FIRST)
    made.remove(FIRST)
    assert made.names == [SECOND, FIRST]
    made.remove(First)
    assert made.names == [SECOND]


def test_a_class_does_not_stand_for_its_subclasses() -> None:
    made = EnqueueChain("ENQUEUE_MIDDLEWARE")
    made.add(Inner)
    with pytest.raises(LookupError):
        made.remove(Outer)


#: Each operation that changes a chain, next to or about an existing middleware.
OPERATIONS: dict[str, Callable[[EnqueueChain, Any], None]] = {
    "remove": lambda made, existing: made.remove(existing),
    "insert_before": lambda made, existing: made.insert_before(existing, Third),
    "insert_after": lambda made, existing: made.insert_after(existing, Third),
    "add": lambda made, existing: made.add(Third),
    "prepend": lambda made, existing: made.prepend(Third),
}


@together("unknown", [FIRST, First, passing, First(), None])
@together("operation", ["remove", "insert_before", "insert_after"])
def test_what_is_not_in_the_chain_is_said_so(operation: str, unknown: Any) -> None:
    made = chain(SECOND)
    with pytest.raises(LookupError, match="not in the middleware chain") as caught:
        OPERATIONS[operation](made, unknown)
    assert SECOND in str(caught.value)
    assert made.names == [SECOND]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_chain_that_is_in_use_cannot_be_changed(operation: str) -> None:
    made = chain(FIRST)
    made.freeze()
    with pytest.raises(RuntimeError, match="in use and cannot be changed"):
        OPERATIONS[operation](made, First)
    assert made.names == [FIRST]


@pytest.mark.parametrize("path", ["nowhere.to.be.found", f"{HERE}.Missing", "no_dots", ""])
def test_a_path_that_cannot_be_imported_is_named_with_its_setting(path: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        chain(FIRST, path)
    assert str(caught.value) == (
        f"OJS['ENQUEUE_MIDDLEWARE'] names {path!r}, which cannot be imported."
    )


def test_a_middleware_that_cannot_be_called_is_named() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"samples.NOT_CALLABLE' must be callable"):
        chain(f"{HERE}.NOT_CALLABLE")
    with pytest.raises(ImproperlyConfigured, match=r"'builtins.object' must be callable"):
        chain().add(object)


def test_a_class_that_needs_arguments_is_named() -> None:
    with pytest.raises(ImproperlyConfigured, match="NeedsAnArgument' must be made without arg"):
        chain(f"{HERE}.NeedsAnArgument")


@pytest.mark.parametrize("name", ["asynchronous", "Asynchronous"])
def test_a_coroutine_cannot_stand_before_a_plain_enqueue(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"samples.{name}' must not be async def"):
        chain(f"{HERE}.{name}")


def test_the_settings_begin_both_chains_and_a_change_of_them_begins_anew() -> None:
    with override_settings(
        OJS={"ENQUEUE_MIDDLEWARE": [FIRST, SECOND], "EXECUTION_MIDDLEWARE": (f"{HERE}.Outer",)}
    ):
        assert enqueue_chain().names == [FIRST, SECOND]
        assert execution_chain().names == [f"{HERE}.Outer"]
        assert enqueue_chain() is enqueue_chain()
        enqueue_chain().add(Third)
        assert enqueue_chain().names == [FIRST, SECOND, THIRD]
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [SECOND]}):
            assert enqueue_chain().names == [SECOND]
            assert execution_chain().names == []
    assert enqueue_chain().names == []
