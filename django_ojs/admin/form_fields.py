"""Fields of the names of queues, types and hosts."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from django_ojs.conf import settings
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import OJSError


class NamesField(forms.CharField):
    """Names, one per line; a list of them."""

    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return (super().to_python(value) or "").split()


class QueueNameField(forms.CharField):
    """The name of a queue, or nothing."""

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
