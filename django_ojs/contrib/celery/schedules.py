"""`celery.schedules`: when a beat schedule fires."""

from __future__ import annotations

import re
from collections.abc import Collection

Field = str | int | Collection[int]


class crontab:
    """A schedule by wall clock; `expression` has it as the five fields of cron."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
    ) -> None:
        # Celery's arguments have another order than cron's fields.
        fields = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.expression = " ".join(map(_text, fields))

    @classmethod
    def from_string(cls, text: str) -> crontab:
        """Return a schedule from the five fields of cron."""
        minute, hour, day_of_month, month_of_year, day_of_week = text.split()
        return cls(minute, hour, day_of_week, day_of_month, month_of_year)

    @property
    def restricts_both_days(self) -> bool:
        """Whether the day of the month and the day of the week are both restricted."""
        _, _, day_of_month, _, day_of_week = self.expression.split()
        return "*" not in (day_of_month, day_of_week)

    def __repr__(self) -> str:
        return f"<crontab: {self.expression}>"


def _text(field: Field) -> str:
    if isinstance(field, str | int):
        # Celery reads the first three letters of a day.
        return re.sub(r"([a-z]{3})[a-z]+", r"\1", str(field).replace(" ", "").lower())
    return ",".join(map(str, sorted(field)))
