"""A unique key that a transaction of another session holds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from django_ojs.spec.unique_policy import UniquePolicy
from tests.factories import push
from tests.other_session import open_transaction


def held_key(job_type: str, *args: Any) -> AbstractContextManager[Callable[[], None]]:
    """Let another session store a job that is unique by its arguments, as `open_transaction`."""
    unique = UniquePolicy(keys=["args"])
    return open_transaction(lambda: push(type=job_type, args=list(args), unique=unique))
