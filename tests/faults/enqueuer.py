"""A process that enqueues, and writes down what it knows: `python -m tests.faults.enqueuer LOG …`.

A line is written before an enqueue ("attempted ID") and after its commit ("acknowledged ID") or its
rollback ("rolled-back ID"), with one system call each: a kill cuts nothing in two. Each job of a
transaction comes with a row of the project that names it.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from uuid import UUID

import django


class Log:
    """An append-only file of what is known."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def report(self, what: str, *ids: UUID) -> None:
        os.write(self._file, "".join(f"{what} {key}\n" for key in ids).encode())

    def error(self, error: Exception) -> None:
        os.write(self._file, f"error {type(error).__name__}: {str(error)[:200]!r}\n".encode())


class Rollback(Exception):
    """Raised on purpose."""


class Enqueuer:
    """Enqueues jobs in every way there is, in transactions that end in every way there is."""

    def __init__(self, log: Log, dice: random.Random, queue: str, milliseconds: float) -> None:
        from django_ojs.spec import ids

        self._log = log
        self._dice = dice
        self._queue = queue
        self._milliseconds = milliseconds
        self._new_id = ids.uuid7

    def _ids(self, number: int) -> list[UUID]:
        ids = [self._new_id() for _ in range(number)]
        self._log.report("attempted", *ids)
        return ids

    def _enqueue(self, *keys: UUID) -> None:
        import django_ojs as ojs
        from tests.testapp.models import Thing

        Thing.objects.bulk_create(Thing(name=f"order {key}") for key in keys)
        requests = [
            ojs.request(
                self._dice.choice(["faults.effect", "faults.effect", "faults.atomic"]),
                [self._milliseconds * 2 * self._dice.random()],
                queue=self._queue,
                id=key,
            )
            for key in keys
        ]
        if len(requests) == 1:
            (one,) = requests
            ojs.enqueue(one.type, one.args, queue=self._queue, id=keys[0])
        else:
            ojs.enqueue_batch(requests)

    def one(self) -> int:
        from django.db import transaction

        (key,) = self._ids(1)
        with transaction.atomic():
            self._enqueue(key)
        self._log.report("acknowledged", key)
        return 1

    def batch(self) -> int:
        from django.db import transaction

        keys = self._ids(5)
        with transaction.atomic(durable=True):
            self._enqueue(*keys)
        self._log.report("acknowledged", *keys)
        return 5

    def rolled_back(self) -> int:
        from django.db import transaction

        keys = self._ids(2)
        try:
            with transaction.atomic():
                self._enqueue(*keys)
                raise Rollback
        except Rollback:
            self._log.report("rolled-back", *keys)
        return 0

    def savepoint(self) -> int:
        from django.db import transaction

        before, inside, nested, after = self._ids(4)
        with transaction.atomic():
            self._enqueue(before)
            try:
                with transaction.atomic():
                    self._enqueue(inside)
                    with transaction.atomic():
                        self._enqueue(nested)
                    raise Rollback
            except Rollback:
                pass
            self._enqueue(after)
        self._log.report("rolled-back", inside, nested)
        self._log.report("acknowledged", before, after)
        return 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--queue", default="default")
    parser.add_argument("--milliseconds", type=float, default=5.0, help="mean time of a job")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between transactions")
    parser.add_argument("--ways", default="one,batch,rolled_back,savepoint")
    options = parser.parse_args()
    django.setup()
    from django.db import Error, connections

    dice = random.Random(options.seed)
    log = Log(options.log)
    enqueuer = Enqueuer(log, dice, options.queue, options.milliseconds)
    ways: list[Callable[[], int]] = [getattr(enqueuer, way) for way in options.ways.split(",")]
    left = options.jobs
    while left > 0:
        try:
            left -= dice.choice(ways)()
        except Error as error:
            # Whether it was committed is not known: that is what the checker allows for.
            log.error(error)
            connections.close_all()
            time.sleep(0.05)
        time.sleep(options.pause)


if __name__ == "__main__":
    main()
