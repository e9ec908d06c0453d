"""The pages to create, change and test webhooks, and their deliveries. A secret is shown once."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.base import granted_scopes
from django_ojs.admin.form_fields import NamesField
from django_ojs.admin.formatting import absolute_time
from django_ojs.admin.operator_views import view_name
from django_ojs.admin.secret_page import SecretPageAdmin
from django_ojs.extensions.webhooks import sending
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import deliveries, subscriptions
from django_ojs.extensions.webhooks.operations.subscriptions import Subscription
from django_ojs.models import Job
from django_ojs.spec.errors import NotFound, OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.storage import database

if TYPE_CHECKING:
    _Form = forms.ModelForm[Webhook]
else:
    _Form = forms.ModelForm

#: Deliveries on the page of a webhook.
_LISTED = 20
_FIELDS = ("url", "events", "queues", "job_types", "active")


class _Test(HttpResponseRedirect):
    """The response to a form whose webhook is tested.

    The test comes after the transaction in which Django stores the form. Inside that
    transaction it would let others wait for the receiver, and on SQLite all that write.
    """

    def __init__(self, url: str, webhook: UUID) -> None:
        super().__init__(url)
        self.webhook = webhook


class WebhookForm(_Form):
    """The form has the same rules as the HTTP API."""

    events = NamesField(
        label=gettext_lazy("Events"),
        help_text=gettext_lazy("One per line: types, or patterns such as job.* or *."),
    )
    queues = NamesField(
        label=gettext_lazy("Queues"),
        required=False,
        help_text=gettext_lazy("One per line: only their events are sent. Empty: all events."),
    )
    job_types = NamesField(
        label=gettext_lazy("Job types"),
        required=False,
        help_text=gettext_lazy("One per line: only their events are sent. Empty: all events."),
    )

    class Meta:
        model = Webhook
        fields = _FIELDS
        labels = {"url": "URL"}

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                subscriptions.check(self.subscription())
            except OJSError as error:
                hint = f" {error.hint}" if error.hint else ""
                raise forms.ValidationError(f"{error.message}.{hint}") from None
        return values

    def subscription(self) -> Subscription:
        """Return only the changed fields, because the others may break current rules."""
        names = _FIELDS if self.instance._state.adding else self.changed_data
        return Subscription(**{name: self.cleaned_data[name] for name in names})


class WebhookAdmin(SecretPageAdmin):
    """Uses Django's own list and form. Only users with the scope admin can change anything."""

    place = 110
    form = WebhookForm
    secret_title = gettext_lazy("The secret of the webhook")
    secret_template = "admin/ojs_webhooks/webhook/secret.html"
    change_form_template = "admin/ojs_webhooks/webhook/change_form.html"
    fields = (*_FIELDS, "failures", "disabled_at", "created_at", "latest")
    readonly_fields = ("failures", "disabled_at", "created_at", "latest")
    list_display = ("url", "event_names", "active", "failures", "disabled_at")
    search_fields = ("url",)
    ordering = ("url", "pk")
    order: ClassVar = {"url": str, "pk": UUID}
    when_empty = gettext_lazy("No webhook yet. Add one, and events are sent to its URL.")

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        # Otherwise a query string could probe the salt of a secret.
        return False

    def get_urls(self) -> list[URLPattern]:
        patterns = super().get_urls()
        for pattern in patterns:
            if pattern.name and pattern.name.endswith("_change"):
                # ATOMIC_REQUESTS would put the test of a webhook into a transaction; see `_Test`.
                pattern.callback._non_atomic_requests = set(connections)  # type: ignore[attr-defined]  # as non_atomic_requests() sets it
        return patterns

    def get_queryset(self, request: HttpRequest) -> QuerySet[Webhook]:
        return super().get_queryset(request).using(database.alias())

    def get_fields(self, request: HttpRequest, obj: Webhook | None = None) -> Any:
        return self.fields if obj else _FIELDS

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and _is_admin(request)

    def has_change_permission(self, request: HttpRequest, obj: Webhook | None = None) -> bool:
        return super().has_change_permission(request, obj) and _is_admin(request)

    def has_delete_permission(self, request: HttpRequest, obj: Webhook | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _is_admin(request)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        # The deliveries are left out, because there may be very many.
        return [str(each) for each in objs], {self.opts.verbose_name_plural: len(objs)}, set(), []

    def delete_model(self, request: HttpRequest, obj: Webhook) -> None:
        with suppress(NotFound):  # Another user has removed it since.
            subscriptions.remove(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Webhook]) -> None:
        for webhook in queryset:
            self.delete_model(request, webhook)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        try:
            response = super().changeform_view(request, object_id, form_url, extra_context)
            if isinstance(response, _Test):
                self._send_test(request, response.webhook)
            return response
        except OJSError as error:
            # The webhook may have been removed since the form was checked, for example.
            self.message_user(request, error.message, messages.ERROR)
            name = view_name(Webhook, "changelist")
            return HttpResponseRedirect(reverse(name, current_app=self.admin_site.name))

    def save_model(self, request: HttpRequest, obj: Webhook, form: Any, change: bool) -> None:
        if change:
            subscriptions.update(obj.pk, form.subscription())
            return
        created, secret = subscriptions.create(form.subscription())
        obj.pk = created.pk
        obj.secret = secret  # type: ignore[attr-defined]  # for response_add

    def response_change(self, request: HttpRequest, obj: Webhook) -> HttpResponse:
        if "_rotate" in request.POST:
            _webhook, secret = subscriptions.rotate_secret(obj.pk)
            return self.secret_page(request, obj, secret)
        if "_test" not in request.POST:
            return super().response_change(request, obj)
        return _Test(request.path, obj.pk)

    def _send_test(self, request: HttpRequest, key: UUID) -> None:
        outcome = sending.send_test(subscriptions.get(key))
        if outcome.success:
            text = _("The receiver took the test event: status %(status)s (%(milliseconds)s ms).")
            level = messages.SUCCESS
        else:
            text = _("The test event was not taken: %(reason)s (%(milliseconds)s ms).")
            level = messages.ERROR
        values = {
            "status": outcome.status,
            "reason": outcome.reason,
            "milliseconds": outcome.milliseconds,
        }
        self.message_user(request, text % values, level)

    @admin.display(description=gettext_lazy("events"))
    def event_names(self, webhook: Webhook) -> str:
        return ", ".join(webhook.events)

    @admin.display(description=gettext_lazy("latest deliveries"))
    def latest(self, webhook: Webhook) -> SafeString | str:
        found = deliveries.latest(webhook.pk, limit=_LISTED)
        if not found:
            return _("none yet")
        rows = [
            (
                absolute_time(each.row.created_at),
                self._job_url(each),
                each.row.event_type,
                each.status,
                (each.error or {}).get("message", ""),
            )
            for each in found
        ]
        return format_html(
            "<ul>{}</ul>",
            format_html_join("", '<li>{} <a href="{}">{}</a> {} {}</li>', rows),
        )

    def _job_url(self, delivery: deliveries.DeliveryWithJob) -> str:
        try:
            name = view_name(Job, "change")
            return reverse(name, args=[delivery.row.pk], current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""


def _is_admin(request: HttpRequest) -> bool:
    return Scope.ADMIN in granted_scopes(request)
