"""The settings of steps."""

from dataclasses import dataclass
from datetime import timedelta

from django_ojs.setting import COUNT, DURATION, count, duration, setting


@dataclass(frozen=True, kw_only=True)
class StepsSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    max_steps: int = setting(10_000, count, COUNT)
    max_step_result_bytes: int = setting(1024 * 1024, count, COUNT)
    longest_wait: timedelta = setting(timedelta(days=365), duration, DURATION)
    keep_signals: timedelta = setting(timedelta(days=30), duration, DURATION)
