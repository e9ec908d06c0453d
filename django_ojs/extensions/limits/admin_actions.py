"""The actions on limit keys: pause and resume."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.formatting import absolute_time
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.spec.errors import OJSError
from django_ojs.spec.times import parse_duration


class PauseForm(forms.Form):
    duration = forms.CharField(
        label=gettext_lazy("Duration"),
        required=False,
        initial="1h",
        help_text=gettext_lazy("Such as 30m or PT2H; at most 31 days. Empty: 1 hour."),
    )

    def clean_duration(self) -> timedelta:
        text = str(self.cleaned_data["duration"]).strip()
        if not text:
            return limit_keys.DEFAULT_PAUSE
        try:
            found = parse_duration(text, "duration")
            limit_keys.check_pause(found)
        except OJSError as error:
            raise forms.ValidationError(f"{error.message}.") from None
        return found


def _pause(request: HttpRequest, key: LimitKey, values: Mapping[str, Any]) -> str:
    limit_keys.get(key.pk)  # This raises NotFound in a database that does not know the key.
    limit_keys.pause([key.pk], values["duration"])
    status = limit_keys.get(key.pk)
    if status.row is None or not status.row.is_paused:  # A very short pause is already over.
        return _("%(key)s is not paused.") % {"key": key.pk}
    # If the key had a longer pause, this is its end.
    text = _("No job of %(key)s starts before %(time)s.")
    return text % {"key": key.pk, "time": absolute_time(status.row.paused_until)}


def _pause_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("No job of a paused key starts in any queue; running jobs continue."),
        _("If the key is already paused for longer, that pause stays."),
    )


def _resume(request: HttpRequest, key: LimitKey, values: Mapping[str, Any]) -> str:
    if not limit_keys.open_now([key.pk]):
        raise Skipped(_("%(key)s is not paused.") % {"key": key.pk})
    text = _("The pause of %(key)s is over: its jobs start as its limits allow.")
    return text % {"key": key.pk}


ACTIONS = (
    Action.pause(_pause, consequences=_pause_consequences, form=PauseForm),
    Action.resume(_resume, applies_to=lambda key: key.is_paused),
)
