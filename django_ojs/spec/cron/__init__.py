"""Cron expressions (ojs-cron §3-§5): parse them, and compute when they fire."""

from django_ojs.spec.cron.expression import CronExpression, Occurrence
from django_ojs.spec.cron.fields import CronExpressionError, is_either_enough
from django_ojs.spec.cron.timezone_names import check_timezone

__all__ = [
    "CronExpression",
    "CronExpressionError",
    "Occurrence",
    "check_timezone",
    "is_either_enough",
]
