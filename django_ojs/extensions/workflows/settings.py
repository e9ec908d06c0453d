"""The settings of workflows."""

from dataclasses import dataclass
from datetime import timedelta

from django_ojs.setting import COUNT, DURATION, count, duration, setting


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    max_workflow_jobs: int = setting(20_000, count, COUNT)
    keep_workflows: timedelta = setting(timedelta(days=30), duration, DURATION)
