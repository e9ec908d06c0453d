"""A unique key that a transaction of another session holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from django_ojs.spec.unique_policy import UniquePolicy
from tests.factories import push
from tests.other_session import Other
from tests.worker.waiting import BOUND


@contextmanager
def held_key(job_type: str, *args: Any) -> Iterator[Callable[[], None]]:
    """Let another session store a job that is unique by its arguments, and leave it open.

    Pass what commits its transaction. For PostgreSQL and MariaDB: on SQLite, nothing else can be
    written meanwhile.
    """

    def store() -> None:
        transaction.set_autocommit(False)
        push(type=job_type, args=list(args), unique=UniquePolicy(keys=["args"]))

    with Other() as other:
        other.do(store).result(BOUND)
        yield lambda: other.do(transaction.commit).result(BOUND)
