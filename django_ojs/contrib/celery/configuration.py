"""Celery's configuration: what a project sets on its app, else the `CELERY_` settings of Django."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings as django_settings

from django_ojs.contrib.celery.exceptions import NoEquivalent


class Configuration(dict[str, Any]):
    """`app.conf`: members are attributes too. These have an effect; others have none.

    `task_always_eager`, `task_eager_propagates`, `task_ignore_result`, `task_default_queue`,
    `task_routes` (names and patterns, with a queue and options), `task_time_limit`,
    `task_soft_time_limit`, `beat_schedule`, `timezone`, `imports` and `include`.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            self[name] if name in self else getattr(django_settings, f"CELERY_{name.upper()}", None)
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def route(self, task: str) -> dict[str, Any]:
        """Return the options of a task by `task_routes`, with its queue. Raises NoEquivalent."""
        routes = self.task_routes or ()
        for router in routes if isinstance(routes, list | tuple) else [routes]:
            if isinstance(router, str) or callable(router):
                raise NoEquivalent(
                    "task_routes has a function: name the tasks or patterns of names instead, "
                    '{"shop.reports.*": {"queue": "reports"}}.'
                )
            pairs = router.items() if isinstance(router, Mapping) else router
            # As in Celery, an exact name takes precedence over a pattern.
            for name, found in sorted(pairs, key=lambda pair: _is_pattern(pair[0])):
                if _matches(name, task):
                    return {"queue": found} if isinstance(found, str) else dict(found)
        return {"queue": self.task_default_queue}


def _is_pattern(name: str | re.Pattern[str]) -> bool:
    return isinstance(name, re.Pattern) or "*" in name


def _matches(name: str | re.Pattern[str], task: str) -> bool:
    if isinstance(name, re.Pattern):
        return name.match(task) is not None
    return fnmatchcase(task, name) if _is_pattern(name) else name == task


#: One configuration serves all apps of a process, because `shared_task` belongs to none of them.
configuration = Configuration()
