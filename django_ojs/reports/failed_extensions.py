"""Extensions that have failed in this process."""

from datetime import timedelta
from typing import Final

from django.utils import timezone

from django_ojs.extension import Problem
from django_ojs.hooks import registry

#: A failure that is older is not shown any more.
SHOWN_FOR: Final = timedelta(hours=1)


def problems() -> list[Problem]:
    """Return what failed lately: the log has it in full, and that of other processes."""
    since = timezone.now() - SHOWN_FOR
    return [
        Problem(
            found=f"The extension {name} {failure.what} ({failure.error}).",
            why="What it does for these jobs or this page is missing.",
            cure="The log has the traceback. Correct the extension, or take it out.",
            since=failure.at,
        )
        for name, failure in sorted(registry.failures.items())
        if failure.at >= since
    ]
