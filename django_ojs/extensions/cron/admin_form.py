"""The form of a cron job, which shows the errors of its expression and its job at their fields."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy

from django_ojs.conf import settings
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, OverlapPolicy
from django_ojs.extensions.cron.operations import Definition
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError

_POLICIES: Final = {
    OverlapPolicy.SKIP: gettext_lazy("skip: the earlier run continues, this one is skipped"),
    OverlapPolicy.ALLOW: gettext_lazy("allow: both run"),
    OverlapPolicy.CANCEL_PREVIOUS: gettext_lazy("cancel_previous: the earlier run is cancelled"),
    OverlapPolicy.ENQUEUE: gettext_lazy("enqueue: this one waits until the earlier run has ended"),
}
#: The field of the form for the field that an error names.
_FIELDS: Final = {"cron": "expression"}


class CronJobForm(forms.Form):
    """A cron job. Without `existing` it is a new one; without `payload` its arguments are kept."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=255,
        help_text=gettext_lazy(
            "a-z, 0-9, - and dots. It identifies the cron job and cannot be changed."
        ),
    )
    expression = forms.CharField(
        max_length=255,
        label=gettext_lazy("Schedule"),
        help_text=(
            gettext_lazy(
                "Minute, hour, day of the month, month, day of the week: 0 9 * * "
                "MON-FRI. Or @hourly, @daily, @every 30m."
            )
        ),
    )
    timezone = forms.CharField(
        label=gettext_lazy("Timezone"),
        max_length=255,
        initial="UTC",
        help_text=gettext_lazy("A name such as Europe/Paris."),
    )
    type = forms.CharField(max_length=255, label=gettext_lazy("Job type"))
    queue = forms.CharField(label=gettext_lazy("Queue"), max_length=255, initial="default")
    args = forms.CharField(
        required=False,
        label=gettext_lazy("Arguments"),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=gettext_lazy("A JSON array."),
    )
    overlap_policy = forms.ChoiceField(
        choices=[(policy.value, text) for policy, text in _POLICIES.items()],
        label=gettext_lazy("When a run has not ended"),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"), required=False, widget=forms.Textarea(attrs={"rows": 2})
    )

    def __init__(self, data: Any, *, existing: CronJob | None, payload: bool) -> None:
        super().__init__(data, initial=None if existing is None else _values(existing))
        self._existing = existing
        if existing is not None:
            del self.fields["name"]
        if not payload:
            del self.fields["args"]

    def clean_args(self) -> Any:
        """Return the arguments; an empty field means an empty array."""
        text = self.cleaned_data["args"].strip()
        try:
            return json.loads(text, exact_integers=settings().exact_integers) if text else []
        except OJSError as error:
            raise forms.ValidationError(error.message) from None

    def clean(self) -> dict[str, Any]:
        """Check the cron job as its registration does."""
        if not self.errors:
            try:
                cron.check(self.definition())
            except OJSError as error:
                self.add_operation_error(error)
        return self.cleaned_data

    def add_operation_error(self, error: OJSError) -> None:
        """Show an error at the field that it names, or above the form."""
        field = str(error.details.get("field", "")).removeprefix("options.")
        field = _FIELDS.get(field, field)
        # The name of the field stands above the message.
        message = error.message.removeprefix("cron is invalid: ")
        self.add_error(field if field in self.fields else None, message)

    def definition(self) -> Definition:
        """Return what the fields describe. Options that the form does not have are kept."""
        values = self.cleaned_data
        template: dict[str, Any] = {} if self._existing is None else dict(self._existing.template)
        template["type"] = values["type"]
        template["args"] = values.get("args", template.get("args", []))
        template["options"] = {**(template.get("options") or {}), "queue": values["queue"]}
        return Definition(
            name=values["name"] if self._existing is None else self._existing.name,
            expression=values["expression"],
            timezone=values["timezone"],
            template=template,
            overlap_policy=values["overlap_policy"],
            description=values["description"] or None,
        )


def _values(job: CronJob) -> dict[str, Any]:
    return {
        "expression": job.expression,
        "timezone": job.timezone,
        "type": job.type,
        "queue": job.queue,
        "args": json.pretty(job.template.get("args") or []),
        "overlap_policy": job.overlap_policy,
        "description": job.description,
    }
