"""The form of a new job: a field for each parameter of its handler, or its arguments as JSON."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_ojs.admin.form_fields import PriorityField, QueueNameField
from django_ojs.conf import settings
from django_ojs.handlers import Handler, get_handler
from django_ojs.keyword_handlers import KeywordHandler
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_MISSING: Final = inspect.Parameter.empty
#: The prefix of the fields' names, because a parameter may have the name of another field.
_PREFIX: Final = "arg_"
#: The most characters of an annotation or a default in a help text.
_MAX_SHOWN: Final = 80

#: The annotations that have fields of their own, each with the type of its values.
_SIMPLE: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}
_OPTIONAL: Final = re.compile(r"(?:Optional\[(?P<inner>\w+)\]|(?P<plain>\w+)(?: ?\| ?None)?)")


class JSONArgumentField(forms.CharField):
    """A JSON value. The value of an empty field is `_MISSING`."""

    widget = forms.Textarea

    def __init__(self, *, expected: type | None = None, rows: int = 2, **kwargs: Any) -> None:
        super().__init__(strip=True, **kwargs)
        self.expected = expected
        self.widget.attrs |= {"rows": rows, "spellcheck": "false"}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return _MISSING
        try:
            found = json.loads(text, exact_integers=settings().exact_integers)
        except OJSError as error:
            raise forms.ValidationError(error.message) from None
        if self.expected is not None and not isinstance(found, self.expected):
            raise forms.ValidationError(
                _("Must be an array.") if self.expected is list else _("Must be an object.")
            )
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """A parameter of a handler, and the name of its field."""

    parameter: inspect.Parameter
    #: The kind of its field, or "" for JSON.
    simple: str
    is_optional: bool

    @property
    def field(self) -> str:
        return _PREFIX + self.parameter.name


class EnqueueForm(forms.Form):
    """The form of a job of a type. For a copy of a job, `args` are the arguments of that job.

    Without `has_arguments`, the copy keeps these arguments. With `as_json`, one field has all
    arguments as an array. `if_empty` are the queue and the priority that apply where the fields are
    empty; by default, they are the handler's.
    """

    queue = QueueNameField()
    priority = PriorityField()
    scheduled_at = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Run at"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )

    def __init__(
        self,
        data: Any,
        type: str,
        *,
        args: Sequence[Any] | None = None,
        initial: Mapping[str, Any] | None = None,
        if_empty: tuple[str, int] | None = None,
        has_arguments: bool = True,
        as_json: bool = False,
    ) -> None:
        super().__init__(data, initial=dict(initial or {}))
        self.type = type
        self._handler: Handler[..., Any] | None = get_handler(type)
        self.arguments: list[Argument] | None = None
        options = [self.fields.pop(name) for name in ("queue", "priority", "scheduled_at")]
        if has_arguments:
            self._add_arguments(args, as_json)
        for name, field in zip(("queue", "priority", "scheduled_at"), options, strict=True):
            self.fields[name] = field
        if if_empty is None:
            default = self._handler.defaults if self._handler else None
            if_empty = (default and default.queue) or "default", (default and default.priority) or 0
        for name, value in zip(("queue", "priority"), if_empty, strict=True):
            self.fields[name].widget.attrs["placeholder"] = str(value)
        zone = timezone.get_current_timezone_name()
        self.fields["scheduled_at"].help_text = _("In the time zone %(zone)s. Empty: at once.") % {
            "zone": zone
        }

    def offer_deletion(self) -> None:
        """Ask whether to delete the job that is copied."""
        label = _("Delete the job that this is a copy of")
        self.fields["delete_original"] = forms.BooleanField(required=False, label=label)

    @property
    def has_handler(self) -> bool:
        """Whether this process has a handler of the type.

        Templates test this, because a template would call the handler itself.
        """
        return self._handler is not None

    @property
    def is_json(self) -> bool:
        """Whether the arguments are one JSON array."""
        return "args" in self.fields

    def clean(self) -> dict[str, Any]:
        """Bind the arguments to the handler's signature, as an enqueue in code does."""
        if not self.errors and (self.arguments is not None or self.is_json):
            try:
                self.cleaned_data["bound"] = self._bound()
            except OJSError as error:
                self.add_operation_error(error)
        return self.cleaned_data

    def add_operation_error(self, error: OJSError) -> None:
        """Show an error at the field that it names, or above the form."""
        field = str(error.details.get("field", "")).removeprefix("options.")
        message = f"{error.message} {error.hint}" if error.hint else error.message
        self.add_error(field if field in self.fields else None, message)

    # --- arguments ----------------------------------------------------------------------------

    def _add_arguments(self, args: Sequence[Any] | None, as_json: bool) -> None:
        values = None if self._handler is None or as_json else _by_name(self._handler, args)
        if self._handler is None or values is None:
            self.fields["args"] = JSONArgumentField(
                required=False, label=_("A JSON array"), expected=list, rows=6
            )
            if args is not None:
                self.initial["args"] = json.pretty(list(args))
            return
        self.arguments = [
            _argument(parameter, values.get(parameter.name, _MISSING))
            for parameter in _parameters(self._handler)
        ]
        for each in self.arguments:
            self.fields[each.field] = _field(each)
            value = values.get(each.parameter.name, _MISSING)
            if value is not _MISSING:
                self.initial[each.field] = _initial(each, value)

    def _bound(self) -> list[Any]:
        if self.arguments is None or self._handler is None:
            given = self.cleaned_data["args"]
            args = [] if given is _MISSING else given
            if self._handler is None or isinstance(self._handler, KeywordHandler):
                return list(args)
            return self._handler.bind(tuple(args), {})
        positional: list[Any] = []
        gap: list[Any] = []
        keywords: dict[str, Any] = {}
        for each in self.arguments:
            value, parameter = self.cleaned_data[each.field], each.parameter
            if parameter.kind in _POSITIONAL:
                if value is _MISSING:
                    gap.append(parameter.default)
                else:
                    positional += [*gap, value]
                    gap = []
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                if value is not _MISSING and value:
                    positional += [*gap, *value]
                    gap = []
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                keywords |= {} if value is _MISSING else value
            elif value is not _MISSING:
                keywords[parameter.name] = value
        return self._handler.bind(tuple(positional), keywords)


def _parameters(handler: Handler[..., Any]) -> list[inspect.Parameter]:
    if isinstance(handler, KeywordHandler):
        return list(handler.callable_signature.parameters.values())
    return list(handler.parameters.values())


def _by_name(handler: Handler[..., Any], args: Sequence[Any] | None) -> dict[str, Any] | None:
    """Return the arguments of a job by parameter, or None if they do not fit the parameters."""
    if args is None:
        return {}
    positional, keywords = handler.split_keywords(list(args))
    found: dict[str, Any] = {}
    rest = list(positional)
    for parameter in _parameters(handler):
        if parameter.kind in _POSITIONAL and rest:
            found[parameter.name] = rest.pop(0)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found[parameter.name], rest = rest, []
    if rest:
        return None
    left = dict(keywords or {})
    for parameter in _parameters(handler):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found[parameter.name], left = left, {}
        elif parameter.name in left and parameter.name not in found:
            found[parameter.name] = left.pop(parameter.name)
    return None if left else found


def _argument(parameter: inspect.Parameter, value: Any) -> Argument:
    text = parameter.annotation
    if not isinstance(text, str):
        text = inspect.formatannotation(text) if text is not _MISSING else ""
    match = _OPTIONAL.fullmatch(text.strip("'\" ").removeprefix("typing."))
    name = (match["inner"] or match["plain"] or "") if match else ""
    is_several = parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )
    simple = name if name in _SIMPLE and not is_several else ""
    is_optional = "None" in text or "Optional" in text
    if value is not _MISSING and not _fits(simple, value, is_optional):
        simple = ""
    return Argument(parameter=parameter, simple=simple, is_optional=is_optional)


def _fits(simple: str, value: Any, is_optional: bool) -> bool:
    """Return whether a field of this kind can show a value and return it unchanged."""
    if value is None:
        return is_optional
    if isinstance(value, bool) or simple == "bool":
        return simple == "bool" and isinstance(value, bool)
    if simple == "str":
        return isinstance(value, str) and bool(value) and value == " ".join(value.splitlines())
    if simple == "float":
        return isinstance(value, float)
    return simple == "int" and isinstance(value, int)


def _field(argument: Argument) -> forms.Field:
    parameter = argument.parameter
    has_default = parameter.default is not _MISSING
    common: dict[str, Any] = {"label": parameter.name, "help_text": _help(argument)}
    of_several: dict[Any, tuple[str, type]] = {
        inspect.Parameter.VAR_POSITIONAL: (f"*{parameter.name}", list),
        inspect.Parameter.VAR_KEYWORD: (f"**{parameter.name}", dict),
    }
    several = of_several.get(parameter.kind)
    if several is not None:
        label, expected = several
        return JSONArgumentField(**{**common, "label": label}, required=False, expected=expected)
    required = not (has_default or argument.is_optional)
    empty = _MISSING if has_default else None
    match argument.simple:
        case "str":
            return _Text(required=required, empty=empty, **common)
        case "int":
            return _Number(required=required, empty=empty, **common)
        case "float":
            return _Float(required=required, empty=empty, **common)
        case "bool":
            return _YesNo(required=required, empty=empty, **common)
    return JSONArgumentField(required=not has_default, **common)


class _Text(forms.CharField):
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})

    def __init__(self, *, empty: Any, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)
        self.empty = empty

    def clean(self, value: Any) -> Any:
        return super().clean(value) or self.empty


class _Number(forms.IntegerField):
    def __init__(self, *, empty: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.empty = empty

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        return self.empty if found is None else found


class _Float(_Number):
    widget = forms.NumberInput(attrs={"step": "any"})

    def to_python(self, value: Any) -> Any:
        try:
            found = None if value in self.empty_values else float(value)
        except ValueError:
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise forms.ValidationError(_("Enter a number."))
        return found


class _YesNo(forms.ChoiceField):
    def __init__(self, *, empty: Any, **kwargs: Any) -> None:
        blank = "null"
        if kwargs["required"]:
            blank = pgettext("a value", "choose")
        elif empty is _MISSING:
            blank = pgettext("a value", "default")
        super().__init__(choices=[("", blank), ("true", "true"), ("false", "false")], **kwargs)
        self.empty = empty

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        return self.empty if not found else found == "true"


def _initial(argument: Argument, value: Any) -> Any:
    if not argument.simple:
        return json.pretty(value)
    if argument.simple == "bool":
        return {True: "true", False: "false"}.get(value, "")
    return "" if value is None else value


def _help(argument: Argument) -> str:
    """Return the annotation and the default of a parameter."""
    parameter = argument.parameter
    annotation = parameter.annotation
    words = []
    if annotation is not _MISSING:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        words.append(_cut(text))
    if not argument.simple:
        array, obj = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        kinds: dict[Any, str] = {array: _("as a JSON array"), obj: _("as a JSON object")}
        words.append(kinds.get(parameter.kind, _("as JSON")))
    if parameter.default is not _MISSING:
        words.append(_("default %(value)s") % {"value": _cut(repr(parameter.default))})
    return ", ".join(words)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
