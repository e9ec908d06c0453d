"""Unique policies that name the parameters of a handler, some of which have defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict

import pytest

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.spec.errors import DuplicateJob, UniqueKeyInvalid
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.unique_arguments import UniqueArguments
from tests.handlers.annotated import unannotated


class Order(TypedDict):
    order_id: int


def render(image_id: int, spec: str = "thumbnail", quality: int = 80) -> None: ...


def declare(function: Callable[..., Any], **policy: Any) -> Any:
    return ojs.job("test.render", unique=UniquePolicy(**policy))(function)


@pytest.mark.django_db
@pytest.mark.parametrize("policy", [{"args_keys": ["image_id", "spec"]}, {"args_keys": [1, 0]}])
def test_a_call_that_uses_a_default_has_the_key_of_one_that_passes_it(
    policy: dict[str, Any],
) -> None:
    handler = declare(render, **policy)
    job = handler.enqueue(7)
    assert job.job().args == [7, "thumbnail"]
    duplicates: list[Callable[[], object]] = [
        lambda: handler.enqueue(7, "thumbnail"),
        lambda: handler.enqueue(image_id=7, quality=10),
        lambda: handler.options(priority=1).enqueue(7),
        lambda: handler.options(unique=UniquePolicy(**policy)).enqueue(7, spec="thumbnail"),
        lambda: ojs.enqueue("test.render", [7]),
        lambda: ojs.enqueue_batch([handler.request(7)]),
        lambda: ojs.enqueue("test.render", [7], unique={"args_keys": ["image_id", "spec"]}),
    ]
    for enqueue in duplicates:
        with pytest.raises(DuplicateJob):
            enqueue()
    assert handler.enqueue(7, "large").job().args == [7, "large"]
    assert handler.enqueue(8).outcome == "stored"


@pytest.mark.django_db
def test_where_all_arguments_count_so_do_all_defaults() -> None:
    handler = declare(render, keys=["args"])
    assert handler.enqueue(7).job().args == [7, "thumbnail", 80]
    with pytest.raises(DuplicateJob):
        handler.enqueue(7, quality=80)


@pytest.mark.django_db
def test_a_policy_without_arguments_leaves_the_call_as_it_is() -> None:
    assert declare(render).enqueue(7).job().args == [7]


@pytest.mark.django_db
def test_a_default_that_json_cannot_carry_stays_with_the_worker() -> None:
    marker = object()

    def odd(image_id: int, spec: Any = marker) -> None: ...

    handler = declare(odd, keys=["args"])
    assert handler.enqueue(7).job().args == [7]
    with pytest.raises(UniqueKeyInvalid, match="needs the default of 'spec'"):
        handler.options(unique=UniquePolicy(args_keys=["spec"]))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("imge_id", "names 'imge_id', which is not a parameter of test.render(image_id"),
        ("imge_id", "Did you mean image_id?"),
        ("nonsense", "The names are image_id, spec, quality."),
        (3, "names '3', which is not a parameter"),
    ],
)
@pytest.mark.parametrize("function", [render, unannotated])
def test_a_name_that_is_no_parameter_is_rejected_before_any_job_exists(
    name: Any, says: str, function: Any
) -> None:
    with pytest.raises(UniqueKeyInvalid) as declared:
        declare(function, args_keys=[name])
    assert says in str(declared.value)
    assert handlers.get_handler("test.render") is None
    handler = declare(function)
    with pytest.raises(UniqueKeyInvalid) as chosen:
        handler.options(unique={"args_keys": [name]})
    assert says in str(chosen.value)


@pytest.mark.django_db
def test_a_member_of_an_object_is_no_parameter_and_may_be_named() -> None:
    def by_dict(order: dict[str, int]) -> None: ...

    def by_typed_dict(order: Order | None = None) -> None: ...

    for function in (by_dict, by_typed_dict, lambda *orders: None):
        handler = declare(function, args_keys=["order_id"])
        job = handler.enqueue({"order_id": 1, "n": 1})
        with pytest.raises(DuplicateJob):
            handler.enqueue({"order_id": 1, "n": 2})
        with pytest.raises(UniqueKeyInvalid, match="names 'order_id', which is not in args"):
            handler.enqueue({"n": 2})
        ojs.cancel(job.id)
        handlers.registry.remove("test.render")


def test_parameters_become_positions() -> None:
    names = UniqueArguments("test.render", inspect.signature(render))
    policy = UniquePolicy(args_keys=["spec", "plan", "1"])
    assert names.at(policy).args_keys == ("1", "plan")
    assert names.at(UniquePolicy()) == UniquePolicy()
