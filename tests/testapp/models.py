"""A row for jobs to commit with."""

from __future__ import annotations

from django.db import models


class Thing(models.Model):
    """Stand for a project's own rows."""

    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name
