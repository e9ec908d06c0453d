"""Numbers and times in few characters, in the language of the reader."""

import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.utils import formats, timezone, translation
from django.utils.functional import lazy
from django.utils.translation import gettext as _
from django.utils.translation import pgettext, pgettext_lazy

from django_ojs.spec.errors import OJSError
from django_ojs.spec.texts import Translatable
from django_ojs.spec.times import parse_duration

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise as StrOrPromise
else:
    #: A text, or one that is translated when it is shown.
    StrOrPromise = Any

#: Shown for an unknown value and for none.
DASH: Final = "\N{EM DASH}"

THIN: Final = "\N{NARROW NO-BREAK SPACE}"

_MILLISECONDS: Final = pgettext_lazy("duration", "%(number)s ms")
_SECONDS: Final = pgettext_lazy("duration", "%(number)s s")
_UNITS: Final = (
    (86_400, pgettext_lazy("duration", "%(number)s d")),
    (3_600, pgettext_lazy("duration", "%(number)s h")),
    (60, pgettext_lazy("duration", "%(number)s min")),
    (1, _SECONDS),
)


def in_english() -> AbstractContextManager[None]:
    """Use no translation in this block: for text that is stored, logged or read by programs."""
    return translation.override(None)


def _format(text: Any, values: dict[str, Any]) -> str:
    return str(text % values)


_format_lazily: Final = lazy(_format, str)


def lazy_sentence(text: Any, **values: Any) -> str:
    """Return a lazy translation with its values.

    A message is shown in the language of the reader, and stored in English; see `in_english`.
    """
    return _format_lazily(text, values)


def localized(text: str) -> str:
    """Translate a text of an error; its numbers have the separators of the language.

    A text that is stored already is returned as it is.
    """
    if not isinstance(text, Translatable) or translation.get_language() is None:
        return str(text)
    template = text.template
    translated = _(template)  # Marked where the text was made.
    if not text.values:
        return translated
    return translated % {name: _localized_value(value) for name, value in text.values.items()}


def _localized_value(value: Any) -> str:
    if isinstance(value, Translatable):
        return localized(value)
    if isinstance(value, str):
        return value
    return grouped(value) if isinstance(value, int) else decimal(str(value))


def error_message(error: OJSError, *, hint: bool = False) -> str:
    """Return what an error says, and what helps, in the language of the reader."""
    message = localized(error.text)
    return f"{message} {localized(error.hint)}" if hint and error.hint else message


def grouped(value: int) -> str:
    """Show a whole number with the separators of the language: 12,345,678."""
    if translation.get_language() is None:
        return f"{value:,}"
    return str(formats.number_format(value, force_grouping=True))


lazy_grouped: Final = lazy(grouped, str)


def decimal(text: str) -> str:
    """Show a number, rounded to its digits already, with the decimal sign of the language."""
    return str(formats.number_format(text))


def number(value: float | None) -> str:
    """Show a number with thin separators: 12 345 678; a fraction with one digit below 10."""
    if value is None:
        return DASH
    whole = round(value)
    if isinstance(value, float) and abs(value) < 10 and abs(value - whole) >= 0.05:
        return decimal(f"{value:.1f}")
    text = grouped(whole)
    # In most languages the comma is the decimal sign.
    return text.replace(",", THIN) if formats.get_format("THOUSAND_SEPARATOR") == "," else text


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
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 1:
        return _in_unit(f"{seconds * 1000:.0f}", _MILLISECONDS)
    if seconds < 10:
        return _in_unit(decimal(f"{seconds:.1f}".removesuffix(".0")), _SECONDS)
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        whole, left = divmod(left, size)
        if whole or parts:
            parts.append(_in_unit(str(whole), unit) if whole else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def _in_unit(number: str, unit: Any) -> str:
    return str(unit % {"number": number}).replace(" ", THIN)


def limits_in_words(policy: Mapping[str, Any]) -> str:
    """Show the limits of a limit key; nothing for none."""
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
    """Show a moment to the second in the current timezone; nothing for None."""
    if moment is None:
        return ""
    # Translators: a format of Django for 2026-01-31 14:05:09 UTC
    form = pgettext("format of a date", "Y-m-d H:i:s T")
    return str(formats.date_format(timezone.localtime(moment), form))


def exit_code(code: int) -> str:
    """Show how a process ended, by its exit code, which is negative for a signal."""
    if code >= 0:
        return _("exit code %(code)d") % {"code": code}
    try:
        return _("killed by %(signal)s") % {"signal": signal.Signals(-code).name}
    except ValueError:  # Most real-time signals have no name.
        return _("killed by signal %(number)d") % {"number": -code}
