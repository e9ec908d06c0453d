"""Celery's configuration: what a project sets on its app, over the `CELERY_` settings of Django."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings as django_settings


class Configuration(dict[str, Any]):
    """`app.conf`: members are attributes too. These have an effect; all others are kept.

    `task_always_eager`, `task_eager_propagates`, `task_ignore_result`, `task_default_queue`,
    `task_routes` (names or patterns to queues), `task_time_limit`, `task_soft_time_limit`,
    `beat_schedule` and `timezone`.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            self[name] if name in self else getattr(django_settings, f"CELERY_{name.upper()}", None)
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def route(self, task: str) -> str | None:
        """Return the queue of a task by `task_routes`, or None."""
        for pattern, options in (self.task_routes or {}).items():
            if fnmatchcase(task, pattern):
                queue: str | None = options.get("queue")
                return queue
        return None


#: One for all apps of a process: `shared_task` belongs to none.
configuration = Configuration()
