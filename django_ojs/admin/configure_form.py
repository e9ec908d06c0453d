"""The form of a queue's configuration: bounds, limits, who may enqueue what, defaults, retention.

A field is one member of the configuration. Members without a field stay as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_ojs.admin.form_fields import LinesField, NamesField
from django_ojs.admin.formatting import StrOrPromise, number
from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.spec.errors import OJSError
from django_ojs.spec.queue_config import check, is_known

DEFAULT: Final = pgettext_lazy("a value", "default")

_STRATEGIES: Final[dict[str, StrOrPromise]] = {
    "reject": gettext_lazy("reject: an enqueue fails"),
    "block": gettext_lazy("block: an enqueue waits for space, then fails"),
    "drop_oldest": gettext_lazy("drop_oldest: the oldest jobs are dropped"),
}

#: The path of each field in the configuration.
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "max_depth": ("backpressure", "max_depth"),
    "max_size_bytes": ("backpressure", "max_size_bytes"),
    "strategy": ("backpressure", "strategy"),
    "warning_threshold": ("backpressure", "warning_threshold"),
    "max_envelope_bytes": ("max_envelope_bytes",),
    "concurrency": ("concurrency",),
    "rate": ("rate_limit", "limit"),
    "rate_period": ("rate_limit", "period"),
    "throttle": ("rate_limit", "throttle", "limit"),
    "throttle_period": ("rate_limit", "throttle", "period"),
    "allowed_job_types": ("allowed_job_types",),
    "producers": ("producers",),
    "default_timeout": ("default_timeout",),
    "default_max_attempts": ("default_retry", "max_attempts"),
    "keep_completed": ("retention", "completed"),
    "keep_cancelled": ("retention", "cancelled"),
    "keep_discarded": ("retention", "discarded"),
}


#: The groups of the form: a name for URLs, a title, and the fields.
_GROUPS: Final[Sequence[tuple[str, StrOrPromise, Sequence[str]]]] = (
    (
        "bounds",
        gettext_lazy("Bounds"),
        ("max_depth", "max_size_bytes", "strategy", "warning_threshold", "max_envelope_bytes"),
    ),
    (
        "limits",
        gettext_lazy("Limits of runs"),
        ("concurrency", "rate", "rate_period", "throttle", "throttle_period"),
    ),
    ("producers", gettext_lazy("Who may enqueue what"), ("allowed_job_types", "producers")),
    (
        "defaults",
        gettext_lazy("Defaults of new jobs"),
        ("default_timeout", "default_max_attempts"),
    ),
    (
        "retention",
        gettext_lazy("How long jobs are kept"),
        ("keep_completed", "keep_cancelled", "keep_discarded"),
    ),
)
#: The key of `initial` for the values that apply where a field is empty.
IN_FORCE: Final = "in_force"


class _TimeField(forms.CharField):
    """A field that takes seconds or a duration."""

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value))
        return int(text) if text.isdecimal() and text.isascii() else text


def _period(label: StrOrPromise, help_text: StrOrPromise) -> forms.Field:
    return forms.CharField(required=False, label=label, help_text=help_text, max_length=100)


def _number(label: StrOrPromise, help_text: StrOrPromise = "", **kwargs: Any) -> forms.Field:
    kwargs = {"min_value": 0, "max_value": 2**53, **kwargs}
    return forms.IntegerField(required=False, label=label, help_text=help_text, **kwargs)


class ConfigureForm(forms.Form):
    """An empty field falls back to the settings or the default policy."""

    max_depth = _number(
        gettext_lazy("Maximum jobs"),
        gettext_lazy("Waiting jobs: available, scheduled and retryable. 0: no bound."),
    )
    max_size_bytes = _number(
        gettext_lazy("Maximum bytes"),
        gettext_lazy("Size of the waiting jobs as compact JSON. 0: no bound."),
    )
    strategy = forms.ChoiceField(
        required=False,
        choices=[("", DEFAULT), *_STRATEGIES.items()],
        label=gettext_lazy("When full"),
    )
    warning_threshold = _number(
        gettext_lazy("Warning threshold, in %"),
        gettext_lazy(
            "Percentage of the maximum jobs or bytes. From there on the queue is amber, and an "
            "event is published."
        ),
        max_value=100,
    )
    max_envelope_bytes = _number(gettext_lazy("Maximum job size, in bytes"), max_value=None)
    concurrency = _number(
        gettext_lazy("Concurrency"),
        gettext_lazy("How many jobs run at the same time, over all workers. 0: no limit."),
    )
    rate = _number(gettext_lazy("Rate"), gettext_lazy("How many jobs start in the period."))
    rate_period = _period(gettext_lazy("Rate period"), gettext_lazy("Such as PT1M or PT1H."))
    throttle = _number(
        gettext_lazy("Throttle"),
        gettext_lazy("How many jobs start in the throttle period, evenly spaced."),
    )
    throttle_period = _period(gettext_lazy("Throttle period"), gettext_lazy("Such as PT1S."))
    allowed_job_types = NamesField(
        required=False,
        label=gettext_lazy("Allowed job types"),
        help_text=gettext_lazy("One per line, such as email.*. Jobs of other types are rejected."),
    )
    producers = LinesField(
        required=False,
        label=gettext_lazy("Producers"),
        help_text=gettext_lazy(
            "Names of API keys and of users, one per line. Others may not enqueue over HTTP."
        ),
    )
    default_timeout = _TimeField(
        required=False,
        max_length=100,
        label=gettext_lazy("Default timeout"),
        help_text=gettext_lazy(
            "Seconds, or a duration such as PT5M. For new jobs that have none. 0: no default."
        ),
    )
    default_max_attempts = _number(
        gettext_lazy("Default number of attempts"),
        gettext_lazy("For new jobs that have none."),
    )
    keep_completed = _period(
        gettext_lazy("Keep completed jobs"), gettext_lazy("A duration, such as P7D or PT12H.")
    )
    keep_cancelled = _period(
        gettext_lazy("Keep cancelled jobs"), gettext_lazy("A duration, such as P7D or PT12H.")
    )
    keep_discarded = _period(
        gettext_lazy("Keep discarded jobs"),
        gettext_lazy("A duration, such as P7D or PT12H. It does not apply to dead letters."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (top, *_rest) in _MEMBERS.items():
            if not is_known(top):  # Its extension is not installed.
                del self.fields[name]
        in_force: Mapping[str, str] = self.initial.get(IN_FORCE) or {}
        for name, field in self.fields.items():
            field.show_hidden_initial = True  # The form sends what was read, too; see `clean`.
            value = in_force.get(".".join(_MEMBERS[name]), DEFAULT)
            if isinstance(field, forms.ChoiceField):
                field.choices = [("", value), *_STRATEGIES.items()]
            else:
                field.widget.attrs["placeholder"] = value
        limit = number(settings().limits.envelope_bytes)
        self.fields["max_envelope_bytes"].help_text = _(
            "Size of a job's envelope; at most %(limit)s. 0: the limit of the server."
        ) % {"limit": limit}

    def groups(self, opened: str) -> list[tuple[StrOrPromise, list[forms.BoundField], bool]]:
        """Return the groups, each with a title, its fields and whether it is unfolded.

        The group named `opened` is unfolded (by default the first one), and so is each group with
        an error.
        """
        shown = [
            (name, title, [field for field in fields if field in self.fields])
            for name, title, fields in _GROUPS
        ]
        known = [name for name, _title, fields in shown if fields]
        first = opened if opened in known else known[0]
        return [
            (
                title,
                [self[field] for field in fields],
                name == first or any(field in self.errors for field in fields),
            )
            for name, title, fields in shown
            if fields
        ]

    def clean(self) -> dict[str, Any]:
        """Check the values together, as the configuration that they make.

        Values that the user has left as they were read are not returned, because another user may
        have changed them since. A limit and its period are one value.
        """
        values = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                check(_with({}, values), max_envelope_bytes=settings().limits.envelope_bytes)
            except OJSError as error:
                self.add_error(_field_of(error), f"{error.message}.")
        changed = {name.removesuffix("_period") for name in self.changed_data}
        return {
            name: value
            for name, value in values.items()
            if self[name].html_initial_name not in self.data
            or name.removesuffix("_period") in changed
        }


def own_values(queue: Queue) -> dict[str, Any]:
    """Return the values of the form that are stored for a queue."""
    found: dict[str, Any] = {}
    config = _with_one_spelling(queue.config)
    for name, path in _MEMBERS.items():
        value: Any = config
        for member in path:
            value = value.get(member) if isinstance(value, dict) else None
        found[name] = _empty(name) if value is None else value
    if (threshold := found["warning_threshold"]) is not None:
        found["warning_threshold"] = round(threshold * 100)
    return found


def changed_values(queue: Queue, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a submitted form that differ from those stored for the queue."""
    own = own_values(queue)
    return {name: value for name, value in values.items() if value != own[name]}


def changes(queue: Queue, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of the configuration that the changed values make, by top-level key.

    Unchanged values are left out, because a field can show less than is stored: it rounds a
    threshold to whole percents, and shows an empty list of names like a missing one.
    """
    merged = _with(_with_one_spelling(queue.config), changed)
    return {
        top: merged.get(top)
        for top in dict.fromkeys(path[0] for path in _MEMBERS.values())
        if is_known(top) and merged.get(top) != queue.config.get(top)
    }


def labels() -> dict[str, StrOrPromise]:
    """Return the labels of the fields, by the members of the configuration."""
    fields = ConfigureForm.base_fields
    found = {".".join(path): fields[name].label or name for name, path in _MEMBERS.items()}
    return found | {"backpressure.warning_threshold": gettext_lazy("Warning threshold")}


def _empty(name: str) -> Any:
    field = ConfigureForm.base_fields[name]
    return [] if isinstance(field, NamesField) else "" if not _is_number(field) else None


def _is_number(field: forms.Field) -> bool:
    return isinstance(field, forms.IntegerField)


def _with(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the values of a form, where an empty value removes the member."""
    found = dict(config)
    for name, value in values.items():
        if name == "warning_threshold" and value is not None:
            value = value / 100
        _put(found, _MEMBERS[name], None if value in ("", []) else value)
    return found


def _with_one_spelling(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with its rate as `limit` and `period`, not as the object `rate`."""
    limits = config.get("rate_limit")
    if not isinstance(limits, dict) or "limit" in limits or not limits.get("rate"):
        return dict(config)
    rest = {name: value for name, value in limits.items() if name != "rate"}
    return {**config, "rate_limit": {**rest, **limits["rate"]}}


def _put(config: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    name, *rest = path
    if rest:
        given = config.get(name)
        inner = dict(given) if isinstance(given, dict) else {}
        _put(inner, tuple(rest), value)
        value = inner or None
    if value is None:
        config.pop(name, None)
    else:
        config[name] = value


def _field_of(error: OJSError) -> str | None:
    """Return the field that an error of the configuration is about, or None."""
    path = str(error.details.get("field", "")).split(".")
    found = [name for name, known in _MEMBERS.items() if list(known)[: len(path)] == path]
    return found[0] if found else None
