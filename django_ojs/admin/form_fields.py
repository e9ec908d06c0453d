"""Fields that several forms have: names of queues, types and hosts, and a priority."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from django_ojs.conf import settings
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY, check_queue
from django_ojs.spec.errors import OJSError


class NamesField(forms.CharField):
    """A field for names, one per line; its value is a list."""

    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return (super().to_python(value) or "").split()


class LinesField(NamesField):
    """Like NamesField, but a name may have spaces, as an API key's may."""

    def to_python(self, value: Any) -> Any:
        lines = (forms.CharField.to_python(self, value) or "").splitlines()
        return [name for line in lines if (name := line.strip())]


class PriorityField(forms.IntegerField):
    """A field for the priority of a job, which may be empty."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("label", gettext_lazy("Priority"))
        super().__init__(required=False, min_value=MIN_PRIORITY, max_value=MAX_PRIORITY, **kwargs)


class QueueNameField(forms.CharField):
    """A field for the name of a queue, which may be empty."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("label", gettext_lazy("Queue"))
        super().__init__(required=False, max_length=255, **kwargs)

    def clean(self, value: Any) -> str:
        name = str(super().clean(value))
        try:
            if name:
                check_queue(name, settings().limits)
        except OJSError as error:
            raise forms.ValidationError(error.message) from None
        return name
