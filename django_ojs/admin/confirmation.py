"""The confirmation page of an action: its consequences, its objects and its forms."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.actions import Action, ActionResult

#: The most objects that the page names; it only counts the others.
_MAX_NAMED: Final = 20


class NameForm(forms.Form):
    """A user confirms an action by typing the name of its object, or the number of objects."""

    confirm_name = forms.CharField(
        label=gettext_lazy("Name"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = name
        self.fields["confirm_name"].label = _("Type %(name)s to confirm") % {"name": name}

    def clean_confirm_name(self) -> str:
        typed = str(self.cleaned_data["confirm_name"])
        if typed != self._name:
            raise forms.ValidationError(
                _("This is not the name. Type %(name)s.") % {"name": self._name}
            )
        return typed


class Confirmation:
    """An action on some objects, with its forms. `data` is None until the user has confirmed."""

    def __init__(self, action: Action, objects: Mapping[str, Any], data: Any) -> None:
        self.action = action
        self.objects = objects
        self.existing = [obj for obj in objects.values() if obj is not None]
        self.form: forms.Form | None = None
        self.name_form: NameForm | None = None
        if action.form is not None:
            first = self.existing[0] if self.existing else None
            initial = dict(action.initial(first)) if action.initial and first is not None else None
            self.form = action.form(data, initial=initial)
        if action.confirm_name:
            name = next(iter(objects)) if len(objects) == 1 else str(len(objects))
            self.name_form = NameForm(data, name=name)

    def is_valid(self) -> bool:
        return all(form is None or form.is_valid() for form in (self.form, self.name_form))

    @property
    def values(self) -> Mapping[str, Any]:
        return {} if self.form is None else self.form.cleaned_data

    def shows_error_of(self, result: ActionResult) -> bool:
        """Add the error of an operation to the form, which keeps what the user has filled in.

        Return False if there is no form, or no error of a single object.
        """
        if self.form is None or result.done or len(self.objects) != 1:
            return False
        self.form.add_error(None, result.skipped[0][1])
        return True

    def context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of confirm.html."""
        consequences = self.action.consequences
        groups: Any = getattr(self.form, "groups", None)
        confirm, leave = self.action.label, _("Back without changes")
        if self.action.choices is not None:
            confirm, leave = self.action.choices(self.existing)
        return {
            "confirm": confirm,
            "leave": leave,
            "action": self.action,
            "keys": list(self.objects),
            "objects": self.existing[:_MAX_NAMED],
            "more": max(0, len(self.existing) - _MAX_NAMED),
            "missing": len(self.objects) - len(self.existing),
            "consequences": consequences(request, self.existing) if consequences else (),
            "in_force": self.action.in_force(self.existing) if self.action.in_force else (),
            "form": self.form,
            "groups": groups(request.GET.get("open", "")) if groups else (),
            "name_form": self.name_form,
        }
