"""Which names of the IANA timezone database a schedule may use (ojs-cron §5.1)."""

import re
import time
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from django_ojs.extensions.cron.spec.fields import CronExpressionError
from django_ojs.spec.suggestions import did_you_mean

#: Seconds after which a timezone is read again (ojs-cron §5.3).
RELOADED_EVERY: Final = 3600.0

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?[+-]?\d[\d:]*|(?:Etc/)?GMT[+-]\d+", re.ASCII)
# The database lists abbreviations too: EST, CET, GMT. They have no lower-case letter.
_ABBREVIATION: Final = re.compile(r"(?!UTC$)[A-Z][A-Z\d-]*", re.ASCII)
_NAME: Final = re.compile(r"UTC|(?!Factory$)[A-Z][A-Za-z_/-]*", re.ASCII)


def check_timezone(name: str) -> ZoneInfo:
    """Return the timezone of this name. Raises CronExpressionError with the field `timezone`."""
    if _OFFSET.fullmatch(name):
        raise _error("an offset has no daylight saving time. Use a name such as Europe/Paris.")
    if _ABBREVIATION.fullmatch(name):
        raise _error("an abbreviation can mean several timezones. Use UTC or America/New_York.")
    try:
        return _load(name, int(time.monotonic() / RELOADED_EVERY))
    except (KeyError, ValueError, OSError):  # A path or a folder raises these, too.
        pass
    known = [
        name
        for name in available_timezones()
        if _NAME.fullmatch(name) and not _ABBREVIATION.fullmatch(name)
    ]
    if "Europe/Paris" not in known:
        raise _error("this machine has no timezone database. Install the package tzdata.")
    cure = did_you_mean(name, known)
    if not cure.startswith("Did"):
        cure = "Use a name such as Europe/Paris."
    raise _error(f"the name is not in the IANA database. {cure}")


@lru_cache(maxsize=1024)
def _load(name: str, period: int) -> ZoneInfo:
    # ZoneInfo itself would keep what it has read, but a machine may be updated while its workers
    # run.
    if not _NAME.fullmatch(name):
        raise KeyError(name)
    return ZoneInfo.no_cache(name)


def _error(message: str) -> CronExpressionError:
    return CronExpressionError("timezone", message)
