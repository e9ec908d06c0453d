"""Several cases in one test, where the scene costs more than what each of them does in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from django_ojs.storage import bounds, database, process_state, queue_configs
from tests.databases import ALIASES


def begin_as_a_new_process() -> None:
    """Forget what a process remembers, except that it knows, without a query, of no configuration.

    What a test configures is read from the database, as always.
    """
    process_state.reset()
    for alias in ALIASES:
        queue_configs.remember(alias, {}, seconds=3_600)
        with database.using(alias):
            bounds.configured.queues = {}


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let an error in the block name its case. What the block stores stays."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name}")
        raise


@contextmanager
def case(name: str) -> Iterator[None]:
    """Undo in the database what the block does. An error in the block names the case."""
    begin_as_a_new_process()
    with named(name), transaction.atomic():
        yield
        transaction.set_rollback(True)
    begin_as_a_new_process()
