"""API keys: make one, see it once, change what it may do, revoke it."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers

from django_ojs.http.access import scopes_of
from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys, audit
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope, complete

if TYPE_CHECKING:
    _Form = forms.ModelForm[ApiKey]
    _Admin = admin.ModelAdmin[ApiKey]
else:
    _Form, _Admin = forms.ModelForm, admin.ModelAdmin

SCOPES = {
    Scope.READ: "look at jobs and queues, arguments and results included",
    Scope.PRODUCER: "enqueue",
    Scope.WORKER: "fetch jobs and finish them",
    Scope.OPERATOR: "read, enqueue, cancel and retry",
    Scope.ADMIN: "everything",
}


class QueueNamesField(forms.CharField):
    """Names of queues, one a line."""

    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        """Show the names."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Read the names."""
        try:
            return api_keys.checked_queues((super().to_python(value) or "").split())
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None


class ApiKeyForm(_Form):
    """What a key may do. A user gives away what the user has, and no more."""

    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple)
    queues = QueueNamesField(required=False, help_text="One a line. Empty: all queues.")

    class Meta:
        model = ApiKey
        fields = ("name", "scopes", "queues", "expires_at")

    def clean_name(self) -> str:
        """Refuse what would break a line of a log."""
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise forms.ValidationError("Use printable characters.")
        return name


@admin.register(ApiKey)
class ApiKeyAdmin(_Admin):
    """The keys. The secret is on the page that answers its making, and nowhere else."""

    form = ApiKeyForm
    fields = (
        *("name", "scopes", "queues", "expires_at"),
        *("prefix", "status", "created_at", "last_used_at"),
    )
    readonly_fields = ("prefix", "status", "created_at", "last_used_at")
    list_display = ("name", "prefix", "status", "may", "where", "expires_at", "last_used_at")
    list_display_links = ("name",)
    search_fields = ("name", "prefix")
    ordering = ("name", "-pk")
    actions = ("revoke",)
    show_full_result_count = False

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Refuse all: Django would let an address ask for the hash of a key, letter by letter."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        """Add the database's time: it decides what has expired."""
        return super().get_queryset(request).annotate(now=Now())

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """Leave out what a new key does not have."""
        return self.fields if obj else ApiKeyForm.Meta.fields

    def get_form(
        self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Offer the scopes the user has."""
        form = super().get_form(request, obj, change=change, **kwargs)
        held = _held(request)
        if "scopes" in form.base_fields:  # not on a page to look at
            field: Any = form.base_fields["scopes"]
            field.choices = [
                (scope.value, f"{scope}: {text}") for scope, text in SCOPES.items() if scope in held
            ]
        return form

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require a scope to give away."""
        return super().has_add_permission(request) and bool(_held(request))

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Require all scopes that the key has."""
        return super().has_change_permission(request, obj) and _covers(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Require the same."""
        return super().has_delete_permission(request, obj) and _covers(request, obj)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Make the key, or change it."""
        if change:
            super().save_model(request, obj, form, change)
            audit.note(
                "api_key.changed",
                principal=request.user.get_username(),
                key_prefix=obj.prefix,
                fields=form.changed_data,
            )
            return
        key, text = api_keys.create(
            name=obj.name,
            scopes=obj.scopes,
            queues=obj.queues,
            expires=obj.expires_at,
            by=request.user.get_username(),
        )
        obj.pk, obj.prefix = key.pk, key.prefix
        obj.handed_out = text  # type: ignore[attr-defined]  # for this answer alone

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the key.

        In the answer itself: a message would store it, in a cookie or a session.
        """
        response = TemplateResponse(
            request,
            "admin/django_ojs/apikey/created.html",
            {
                **self.admin_site.each_context(request),
                "title": "The new API key",
                "opts": self.opts,
                "key": obj,
                "text": obj.handed_out,  # type: ignore[attr-defined]  # see save_model
            },
        )
        add_never_cache_headers(response)
        return response

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Leave one button to a new key: its answer must be seen."""
        if kwargs.get("add"):
            context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.action(description="Revoke", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Let the keys work no more."""
        done = 0
        for key in queryset.filter(revoked_at=None):
            # Of keys that may do more than the user, the user keeps off.
            if self.has_change_permission(request, key):
                api_keys.revoke(key.prefix, by=request.user.get_username())
                self.log_change(request, key, "Revoked.")
                done += 1
        skipped = queryset.count() - done
        self.message_user(
            request,
            f"{done} revoked, {skipped} skipped." if skipped else f"{done} revoked.",
            messages.WARNING if skipped else messages.SUCCESS,
        )

    @admin.display(description="status")
    def status(self, key: ApiKey) -> str:
        """Say whether it works."""
        return api_keys.status(key)

    @admin.display(description="scopes")
    def may(self, key: ApiKey) -> str:
        """Name the scopes."""
        return ", ".join(key.scopes)

    @admin.display(description="queues")
    def where(self, key: ApiKey) -> str:
        """Name the queues."""
        return ", ".join(key.queues) or "all"


def _held(request: HttpRequest) -> frozenset[Scope]:
    return complete(scopes_of(request.user))


def _covers(request: HttpRequest, key: ApiKey | None) -> bool:
    return key is None or api_keys.scopes_of(key) <= _held(request)
