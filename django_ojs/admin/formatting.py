"""Numbers and times in few characters, in the language of the reader."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import pgettext, pgettext_lazy

from django_ojs.formatting import DASH, in_units
from django_ojs.spec.times import parse_duration

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise as StrOrPromise
else:
    #: A text, which may be translated only when it is shown.
    StrOrPromise = Any

THIN: Final = "\N{NARROW NO-BREAK SPACE}"

_UNITS: Final = {
    "ms": pgettext_lazy("duration", "%(number)s ms"),
    "s": pgettext_lazy("duration", "%(number)s s"),
    "min": pgettext_lazy("duration", "%(number)s min"),
    "h": pgettext_lazy("duration", "%(number)s h"),
    "d": pgettext_lazy("duration", "%(number)s d"),
}


def grouped(value: int) -> str:
    """Show a whole number with the separators of the language: 12,345,678."""
    if -1000 < value < 1000:
        return str(value)
    return str(formats.number_format(value, force_grouping=True))


def decimal(text: str) -> str:
    """Show a number that is already rounded, with the decimal sign of the language."""
    if len(text) < 4 and text.isdecimal():
        return text
    return str(formats.number_format(text))


def number(value: float | None) -> str:
    """Show a number with thin separators: 12 345 678. A fraction below 10 has one decimal place."""
    if value is None:
        return DASH
    whole = round(value)
    if isinstance(value, float) and abs(value) < 10 and abs(value - whole) >= 0.05:
        return decimal(f"{value:.1f}")
    text = grouped(whole)
    # A comma could be read as the decimal sign that it is in most languages.
    is_separator = "," in text and formats.get_format("THOUSAND_SEPARATOR") == ","
    return text.replace(",", THIN) if is_separator else text


def short(value: float | None) -> str:
    """Show a number in about four characters: 12.3k."""
    if value is None:
        return DASH
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit * (10 if sign == "k" else 1):
            return decimal(f"{value / unit:.1f}".removesuffix(".0")) + sign
    return number(value)


def duration(value: timedelta | float | None) -> str:
    """Show a duration (a timedelta, or seconds) in its two largest units: 3 min 5 s."""
    if value is None:
        return DASH
    return " ".join(
        str(_UNITS[unit] % {"number": decimal(number)}).replace(" ", THIN)
        for number, unit in in_units(value)
    )


def octave(seconds: float | None) -> str:
    """Show the range of a duration that was counted by powers of two, such as 1 s to 2 s."""
    if seconds is None:
        return DASH
    high = 2.0 ** max(0, math.ceil(math.log2(max(seconds * 1000, 1)))) / 1000
    low = duration(high / 2) if high > 0.001 else "0"
    return f"{low}\N{EN DASH}{duration(high)}"


def limits_in_words(policy: Mapping[str, Any]) -> str:
    """Show the limits of a limit key, or "" if it has none."""
    parts = []
    if policy.get("concurrency") is not None:
        parts.append(_("%(count)s at the same time") % {"count": grouped(policy["concurrency"])})
    for name in ("rate", "throttle"):
        if given := policy.get(name):
            text = (
                _("%(count)s in %(period)s, evenly spaced")
                if name == "throttle"
                else _("%(count)s in %(period)s")
            )
            period = duration(parse_duration(given["period"], name))
            parts.append(text % {"count": grouped(given["limit"]), "period": period})
    if policy.get("max_per_second"):
        parts.append(_("%(count)s a second") % {"count": grouped(policy["max_per_second"])})
    return "; ".join(parts)


def absolute_time(moment: datetime | None) -> str:
    """Show a moment to the second in the current timezone, or "" for None."""
    if moment is None:
        return ""
    # Translators: a format of Django for 2026-01-31 14:05:09 UTC
    form, local = pgettext("format of a date", "Y-m-d H:i:s T"), timezone.localtime(moment)
    if form == "Y-m-d H:i:s T":  # A page has hundreds of times, and Django formats them slowly.
        return f"{local:%Y-%m-%d %H:%M:%S %Z}"
    return str(formats.date_format(local, form))
