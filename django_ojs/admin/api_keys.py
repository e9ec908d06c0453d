"""API keys: created, shown once, changed and revoked."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext, pgettext_lazy

from django_ojs.admin.base import granted_scopes
from django_ojs.admin.form_fields import NamesField
from django_ojs.admin.formatting import absolute_time
from django_ojs.admin.operator_views import with_operator
from django_ojs.admin.secret_page import SecretPageAdmin
from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys, key_expiry, operator
from django_ojs.spec.errors import Conflict, InvalidRequest, OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.spec.times import parse_when
from django_ojs.storage import database

if TYPE_CHECKING:
    _Form = forms.ModelForm[ApiKey]
else:
    _Form = forms.ModelForm

SCOPES = {
    Scope.READ: gettext_lazy("read jobs and queues, including arguments and results"),
    Scope.PRODUCER: pgettext_lazy("scope", "enqueue"),
    Scope.WORKER: gettext_lazy("fetch jobs and report their results"),
    Scope.OPERATOR: gettext_lazy("read, enqueue, cancel and retry"),
    Scope.ADMIN: pgettext_lazy("scope", "everything"),
}

_STATUSES = {
    api_keys.ACTIVE: pgettext_lazy("API key", "active"),
    "expired": pgettext_lazy("API key", "expired"),
    "revoked": pgettext_lazy("API key", "revoked"),
}


class QueueNamesField(NamesField):
    """Queue names, one per line."""

    def to_python(self, value: Any) -> Any:
        try:
            return api_keys.checked_queues(super().to_python(value))
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None


class ApiKeyForm(_Form):
    """A user can grant only scopes that the user has."""

    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"), widget=forms.CheckboxSelectMultiple
    )
    queues = QueueNamesField(
        label=gettext_lazy("Queues"),
        required=False,
        help_text=gettext_lazy("One per line. Empty: all queues."),
    )

    class Meta:
        model = ApiKey
        fields = ("name", "scopes", "queues", "expires_at")

    def clean_name(self) -> str:
        # A line break would forge a line of a log.
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise forms.ValidationError(_("Use printable characters."))
        return name

    def clean_expires_at(self) -> datetime | None:
        moment: datetime | None = self.cleaned_data["expires_at"]
        try:
            # The last and the first day of the calendar do not exist in each time zone.
            if moment is not None:
                parse_when(moment, "expires_at")
        except InvalidRequest as error:
            raise forms.ValidationError(f"{error.message}.") from None
        return moment


class ReplaceForm(forms.Form):
    """The form that asks how long both keys are valid."""

    grace = forms.IntegerField(
        label=gettext_lazy("Hours for which the old key stays valid"),
        initial=api_keys.GRACE // timedelta(hours=1),
        min_value=0,
        max_value=24 * 365,
        help_text=gettext_lazy(
            "Within this time, give the new key to the programs that use the old one. 0 ends the "
            "old key now."
        ),
    )


class ApiKeyAdmin(SecretPageAdmin):
    """The secret of a key is only in the response to its creation."""

    place = 130
    form = ApiKeyForm
    secret_title = gettext_lazy("The new API key")
    secret_template = "admin/django_ojs/apikey/created.html"
    fields = (
        *("name", "scopes", "queues", "expires_at"),
        *("prefix", "status", "created_at", "last_used_at", "rejected_at"),
    )
    readonly_fields = ("prefix", "status", "created_at", "last_used_at", "rejected_at")
    change_form_template = "admin/django_ojs/apikey/change_form.html"
    list_display = (
        "name",
        "prefix",
        "status",
        "scope_names",
        "queue_names",
        "expires_at",
        "last_used_at",
    )
    search_fields = ("name", "prefix")
    ordering = ("name", "-pk")
    order: ClassVar = {"name": str, "-pk": int}
    when_empty = gettext_lazy(
        "There is no API key yet. Add one for each program that uses the HTTP API."
    )
    actions = ("revoke",)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        # Otherwise a query string could probe the hash of a key, character by character.
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        # `now` is the time of the database, because its clock decides whether a key has expired. A
        # replica may not know yet that a key was revoked.
        found: QuerySet[ApiKey] = super().get_queryset(request).using(database.alias())
        return key_expiry.with_replacement(found.annotate(now=Now()))

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return self.fields if obj else ApiKeyForm.Meta.fields

    def get_form(
        self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        if "expires_at" in form.base_fields:
            # Django labels the two inputs together, but neither of them alone.
            moment: Any = form.base_fields["expires_at"].widget
            labels = (_("Expires at, date"), _("Expires at, time"))
            for part, label in zip(moment.widgets, labels, strict=True):
                part.attrs["aria-label"] = label
        if "scopes" in form.base_fields:  # A user who may only view has no such field.
            granted = granted_scopes(request)
            field: Any = form.base_fields["scopes"]
            field.choices = [
                (scope.value, f"{scope}: {text}")
                for scope, text in SCOPES.items()
                if scope in granted
            ]
        return form

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Without a scope of their own, users have none to grant.
        return super().has_add_permission(request) and bool(granted_scopes(request))

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return super().has_change_permission(request, obj) and _has_scopes_of(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _has_scopes_of(request, obj)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change and not form.changed_data:
            return  # The audit trail names changes only.
        if change:
            # The other fields may have changed since the form was read, when the key was used or
            # revoked.
            obj.save(update_fields=form.changed_data)
            old, new = form.initial, form.cleaned_data
            operator.acted(
                "api_key.changed",
                obj.pk,
                changes={
                    name: (_text(old.get(name)), _text(new[name])) for name in form.changed_data
                },
                key_prefix=obj.prefix,
            )
            return
        key, text = api_keys.create(
            name=obj.name,
            scopes=obj.scopes,
            queues=obj.queues,
            expires=obj.expires_at,
        )
        obj.pk, obj.prefix = key.pk, key.prefix
        obj.secret = text  # type: ignore[attr-defined]  # for response_add

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        with database.atomic():
            names = ("name", "scopes", "queues")
            operator.acted(
                "api_key.deleted",
                obj.pk,
                changes={name: (getattr(obj, name), None) for name in names},
                key_prefix=obj.prefix,
            )
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            self.delete_model(request, key)

    @admin.action(description=gettext_lazy("Revoke"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        done = 0
        for key in queryset.filter(revoked_at=None):
            if self.has_change_permission(request, key):
                api_keys.revoke(key.prefix)
                done += 1
        skipped = queryset.count() - done
        text = (
            ngettext(
                "%(count)d revoked, %(skipped)d skipped.",
                "%(count)d revoked, %(skipped)d skipped.",
                done,
            )
            if skipped
            else ngettext("%(count)d revoked.", "%(count)d revoked.", done)
        )
        self.message_user(
            request,
            text % {"count": done, "skipped": skipped},
            messages.WARNING if skipped else messages.SUCCESS,
        )

    # --- replacing a key ------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        replace = path(
            "<path:object_id>/replace/",
            self.admin_site.admin_view(with_operator(self.replace_view)),
            name="django_ojs_apikey_replace",
        )
        return [replace, *super().get_urls()]

    def has_replace_permission(self, request: HttpRequest, key: ApiKey | None) -> bool:
        """Return whether the user may create a key and change this one."""
        return self.has_add_permission(request) and self.has_change_permission(request, key)

    def replace_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Replace a key by a new one, which is shown once; or show the form for it."""
        key = self.get_object(request, unquote(object_id))
        if not self.has_replace_permission(request, key):
            raise PermissionDenied
        if key is None:
            raise Http404
        if sent := self.sent_before(request):
            return sent
        form = ReplaceForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                return self._replace(request, key, form.cleaned_data["grace"])
            except Conflict:
                text = _(
                    "The key was replaced meanwhile, by %(prefix)s, which was shown once. Replace "
                    "it again if that key is lost."
                )
                form.add_error(None, text % {"prefix": api_keys.latest_of(key).prefix})
            except OJSError as error:
                form.add_error(None, error.message)
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Replace %(key)s") % {"key": key},
            "opts": self.opts,
            "admin_site": self.admin_site,
            "object": key,
            "form": form,
            "form_token": self.form_token(),
            "latest_known": api_keys.latest_of(key).prefix,
            "queried_at": timezone.now(),
            "is_active": api_keys.status(key) == api_keys.ACTIVE,
        }
        return TemplateResponse(request, "admin/django_ojs/apikey/replace.html", context)

    def _replace(self, request: HttpRequest, key: ApiKey, hours: int) -> HttpResponse:
        new, text = api_keys.replace(
            key.prefix,
            grace=timedelta(hours=hours),
            latest_known=request.POST.get("latest_known"),
        )
        old = api_keys.keys().get(pk=key.pk)
        # Another user may have changed the old key just after it was replaced.
        if old.expires_at is not None:
            self.message_user(
                request,
                _("The old key %(prefix)s is valid until %(time)s.")
                % {"prefix": key.prefix, "time": absolute_time(old.expires_at)},
            )
        return self.secret_page(request, new, text)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        key = kwargs.get("obj")
        context["can_replace"] = (
            key is not None
            and api_keys.status(key) == api_keys.ACTIVE
            and self.has_replace_permission(request, key)
        )
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description=gettext_lazy("status"))
    def status(self, key: ApiKey) -> str:
        status = api_keys.status(key)
        text = str(_STATUSES[status])
        if not (replaced := getattr(key, "replaced_by", None)):
            return text
        text = _("%(status)s, replaced by %(prefix)s") % {"status": text, "prefix": replaced}
        if key.expires_at is not None and status == api_keys.ACTIVE:
            return _("%(status)s; valid until %(time)s") % {
                "status": text,
                "time": absolute_time(key.expires_at),
            }
        return text

    @admin.display(description=gettext_lazy("scopes"))
    def scope_names(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description=gettext_lazy("queues"))
    def queue_names(self, key: ApiKey) -> str:
        return ", ".join(key.queues) or pgettext("queues", "all")


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, datetime) else value


def _has_scopes_of(request: HttpRequest, key: ApiKey | None) -> bool:
    return key is None or api_keys.scopes_of(key) <= granted_scopes(request)
