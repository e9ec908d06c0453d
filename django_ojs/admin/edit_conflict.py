"""Edit conflicts: a form that was opened before another user stored other values.

Each field has a hidden input with the value that the page showed (Django's `show_hidden_initial`).
Where another one is stored by now, nothing is saved at first: the form shows what is stored, keeps
what the user has changed, and names the fields. Saving again then is a decision.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _

from django_ojs.formatting import absolute_time

if TYPE_CHECKING:
    _Form = forms.BaseForm
else:
    _Form = object


class EditConflictMixin(_Form):
    """To stand before the form class whose fields and initial values it reads.

    `changed_data` are the fields that differ from what the page showed. A form without the hidden
    inputs, such as that of a script, is not checked.
    """

    #: The fields that another user has changed, each with the sentence about it.
    _conflicts: Mapping[str, str] = {}

    def detect_edit_conflicts(self) -> None:
        """For a form of something that is stored: to call at the end of `__init__`."""
        for field in self.fields.values():
            field.show_hidden_initial = True
        if self.is_bound:
            self.data, self._conflicts = self._merged()

    def full_clean(self) -> None:
        super().full_clean()
        if not self._conflicts:
            return
        for name, sentence in self._conflicts.items():
            self.add_error(name, sentence)
        self.add_error(
            None,
            _(
                "Another user has changed the fields below since you opened this page. "
                "Nothing is saved yet: check them and save again."
            ),
        )

    def _merged(self) -> tuple[QueryDict, dict[str, str]]:
        """Return the data with what was stored meanwhile, and the conflicts."""
        data, conflicts = QueryDict(mutable=True), {}
        for name, given in MultiValueDict(self.data).lists():
            data.setlist(name, given if isinstance(given, list) else [given])
        for name, field in self.fields.items():
            bound, hidden = self[name], field.hidden_widget()
            shown_name = bound.html_initial_name
            if hidden.value_omitted_from_data(data, self.files, shown_name):
                field.show_hidden_initial = False
                continue
            shown = _with_plain_newlines(hidden.value_from_datadict(data, self.files, shown_name))
            typed, stored = _with_plain_newlines(bound.data), bound.initial
            if field.has_changed(stored, shown):
                value = field.prepare_value(stored)
                _put(data, hidden, shown_name, value)
                if not _is_changed(field, shown, typed):
                    _put(data, field.widget, bound.html_name, value)
                    text = _("Changed meanwhile. Stored now: %(value)s.")
                elif field.has_changed(stored, typed):
                    text = _("Changed meanwhile. Stored now: %(value)s. You have changed it too.")
                else:
                    continue  # To the same value.
                conflicts[name] = text % {"value": _in_words(field, stored)}
            elif isinstance(hidden, forms.MultiWidget):
                # Django repeats the hidden inputs of a rejected form if the name itself is there.
                data[shown_name] = ""
        return data, conflicts


def _is_changed(field: forms.Field, shown: Any, typed: Any) -> bool:
    try:
        return field.has_changed(field.to_python(shown), typed)
    except forms.ValidationError:
        return True


def _with_plain_newlines(value: Any) -> Any:
    # A browser sends each as two characters.
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _put(data: QueryDict, widget: Any, name: str, value: Any) -> None:
    """Fill in a value as the form of the page would send it."""
    if isinstance(widget, forms.MultiWidget):
        data[name] = ""
        each_of: Any = widget
        parts = zip(each_of.widgets_names, each_of.widgets, each_of.decompress(value), strict=True)
        for suffix, part, each in parts:
            data[name + suffix] = part.format_value(each) or ""
    elif isinstance(value, (list, tuple)):
        data.setlist(name, [str(each) for each in value])
    else:
        data[name] = "" if value is None else str(value)


def _in_words(field: forms.Field, value: Any) -> str:
    if value in (None, "", []):
        return _("nothing")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, datetime):
        return absolute_time(value)
    if isinstance(field, forms.ChoiceField) and not isinstance(value, (list, tuple)):
        choices: Any = field.choices
        return str(dict(choices).get(value, value))
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
