"""A router for projects that keep their jobs apart."""

from __future__ import annotations

from typing import Any


class JobsOnOther:
    """Send the models of django_ojs to the alias `other`."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_ojs" else None

    db_for_write = db_for_read


PATH = f"{__name__}.JobsOnOther"
