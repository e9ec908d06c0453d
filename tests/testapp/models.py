"""A row for jobs to commit with."""

from __future__ import annotations

from django.db import models


class Thing(models.Model):
    """Stand for a project's own rows."""

    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Mark(models.Model):
    """What a handler did, and when: the ledger that tests of the worker read.

    Handlers write it to the alias `other`, outside of any transaction of theirs, so that it
    outlives a rollback and a kill. Tests write to it too, to release a handler.
    """

    job_id = models.UUIDField()
    attempt = models.PositiveIntegerField(default=0)
    run = models.PositiveIntegerField(default=0)
    event = models.CharField(max_length=100)
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.event} in run {self.run} of {self.job_id}"
