"""Handlers of functions with keyword arguments, as tasks of Celery and of Django have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_ojs.enqueue_options import read_options
from django_ojs.keyword_handlers import KeywordHandler


class Handler(KeywordHandler):
    takes_context = False


def dispatch(path: str, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
    return path, args, kwargs, options


def call(path: str, kwargs: Any, *, dry_run: bool = False) -> Any:
    return path, (), kwargs, {"dry_run": dry_run}


@pytest.mark.parametrize("function", [dispatch, call])
def test_a_function_may_have_a_parameter_that_is_named_kwargs(function: Callable[..., Any]) -> None:
    handler = Handler(function, "keywords.named", atomic=False, options=read_options({}))
    stored = handler.bind(("a",), {"kwargs": {"n": 1}, "dry_run": True})
    args, keywords = handler.call_arguments(stored)
    assert function(*args, **keywords) == ("a", (), {"n": 1}, {"dry_run": True})
    assert "kwargs" in handler.parameters
