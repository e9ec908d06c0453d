"""A field of names, one per line."""

from typing import Any

from django import forms


class NamesField(forms.CharField):
    """Names, one per line; a list of them."""

    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return (super().to_python(value) or "").split()
