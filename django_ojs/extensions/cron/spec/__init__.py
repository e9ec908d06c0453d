"""Cron expressions (ojs-cron §3-§5): parse them, and compute when they fire."""

from django_ojs.extensions.cron.spec.expression import CronExpression, Occurrence
from django_ojs.extensions.cron.spec.fields import CronExpressionError, is_either_enough
from django_ojs.extensions.cron.spec.timezone_names import check_timezone

__all__ = [
    "CronExpression",
    "CronExpressionError",
    "Occurrence",
    "check_timezone",
    "is_either_enough",
]
