"""Limit keys: a list of the restricted ones (see `limit_keys`), and a form for overrides."""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext

from django_ojs.admin import limit_key_text, payload_permission
from django_ojs.admin.base import OperatorModelAdmin, granted_scopes
from django_ojs.admin.formatting import (
    absolute_time,
    duration,
    grouped,
    limits_in_words,
)
from django_ojs.admin.model_lists import OperatorViews, RowList
from django_ojs.conf import settings
from django_ojs.extensions.limits import claims_by_key, limit_key_use, limit_keys
from django_ojs.extensions.limits.admin_actions import ACTIONS
from django_ojs.extensions.limits.limit_key_use import KeyStatus
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.limits.rate_limit_policy import check_key
from django_ojs.operations import keyset
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[LimitKey]
    _Form = forms.ModelForm[LimitKey]
else:
    _Admin, _Form = admin.ModelAdmin, forms.ModelForm

#: The waiting jobs of a key are counted up to this number.
_MAX_WAITING: Final = 1_000

_LIMITS: Final = ("concurrency", "rate", "rate_period", "throttle", "throttle_period")
_STATE: Final = (
    "in_force",
    "active",
    "waiting",
    "rescheduled",
    "at_limit",
    "paused",
    "drops",
)


class KeyList(RowList):
    """Reads the figures of all keys of the page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        keys = [row.pk for row in self.result_list]
        found = limit_key_use.status_of(keys, most=_MAX_WAITING + 1)
        for row, status in zip(self.result_list, found, strict=True):
            row.status = status
            row.shown = limit_key_text.shown(request, row.pk)

    def url_for_result(self, result: Any) -> str:
        if result.shown != result.pk:
            raise NoReverseMatch  # The address of its page would show the hidden parts of the key.
        return super().url_for_result(result)


class OverrideForm(_Form):
    """The form applies the same rules as the HTTP API."""

    concurrency = forms.IntegerField(
        label=gettext_lazy("Concurrency"),
        required=False,
        help_text=gettext_lazy("How many jobs run at the same time; with 0 none starts."),
    )
    rate = forms.IntegerField(
        label=gettext_lazy("Rate"),
        required=False,
        help_text=gettext_lazy("How many jobs start in the period."),
    )
    rate_period = forms.CharField(
        label=gettext_lazy("Rate period"),
        required=False,
        help_text=gettext_lazy("Such as PT1M or PT1H."),
    )
    throttle = forms.IntegerField(
        label=gettext_lazy("Throttle"),
        required=False,
        help_text=gettext_lazy("How many jobs start in the throttle period, evenly spaced."),
    )
    throttle_period = forms.CharField(
        label=gettext_lazy("Throttle period"),
        required=False,
        help_text=gettext_lazy("Such as PT1S."),
    )
    # One input for the date and the time, because a second one would have no label.
    override_until = forms.DateTimeField(
        label=gettext_lazy("Override until"),
        required=False,
        help_text=gettext_lazy(
            "Such as 2030-01-31 09:30. Empty: the override stays until an operator ends it."
        ),
    )

    class Meta:
        model = LimitKey
        fields = ("key", "override_until")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = self.instance.override if self.instance.is_in_force else {}
        self.initial["concurrency"] = given.get("concurrency")
        for name in ("rate", "throttle"):
            rate = given.get(name) or {}
            self.initial[name], self.initial[f"{name}_period"] = (
                rate.get("limit"),
                rate.get("period"),
            )
        if not self.instance.is_in_force:
            self.initial["override_until"] = None

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.errors:
            key = values.get("key") or self.instance.pk
            try:
                found = limit_keys.check_override(
                    key, self.limits(), until=values["override_until"]
                )
                if not found and "key" in self.fields:  # The form of a new override.
                    raise forms.ValidationError(_("Give one of the limits."))
            except OJSError as error:
                text = error.message.replace("expires_at", _("override until"))
                raise forms.ValidationError(f"{text}.") from None
        return values

    def limits(self) -> dict[str, Any]:
        """Return the limits of the form in the format of the HTTP API."""
        values = self.cleaned_data
        found: dict[str, Any] = {"concurrency": values["concurrency"]}
        for name in ("rate", "throttle"):
            limit, period = values[name], values[f"{name}_period"]
            found[name] = {"limit": limit, "period": period} if limit or period else None
        return found


class LimitKeyAdmin(OperatorViews, OperatorModelAdmin, _Admin):
    """Uses Django's own list and form. Overriding limits requires the scope admin."""

    place = 70
    object_actions = ACTIONS
    form = OverrideForm
    list_display = ("shown_key", *_STATE, "overridden")
    search_fields = ("key",)  # This shows the search box; `get_search_results` does the search.
    search_help_text = gettext_lazy(
        "The beginning of a key. If it is empty, the list has the keys that are at their limit, "
        "paused or overridden, and those whose jobs were dropped in the last hour."
    )
    ordering = ("key",)
    order: ClassVar = {"key": str}
    when_empty = gettext_lazy(
        "No key is at its limit, paused or overridden, and no job of a key was dropped in the last "
        "hour. Search for the beginning of a key."
    )
    actions = ("pause_selected", "resume_selected", "remove_overrides")

    def list_page(self, request: HttpRequest) -> HttpResponse:
        return super(OperatorModelAdmin, self).changelist_view(request)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return super(OperatorModelAdmin, self).changeform_view(
            request, object_id, form_url, extra_context
        )

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        key: LimitKey | None = context["original"]
        buttons = () if key is None else self.buttons(request, key)
        context |= {"buttons": buttons, "here": request.get_full_path()}
        return super().render_change_form(request, context, *args, **kwargs)

    def objects_by_key(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        wanted = list(keys)
        found = limit_keys.known(_visible(request, wanted))
        return {key: found.get(key) for key in wanted}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeyList

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> LimitKey | None:
        if not object_id.isprintable():
            return None  # PostgreSQL rejects a null character.
        found = self.get_queryset(request).filter(pk=object_id).first()
        if found is None:
            # The key exists if a job waits for it, even if nothing is stored about it yet.
            with suppress(OJSError):
                check_key(object_id, "key")
                limit_keys.get(object_id)
                found = LimitKey(pk=object_id)
        if found is not None:
            if not _is_visible(request, found.pk):
                # The response is the same as for a missing key, so that it does not tell whether
                # the key exists.
                return None
            (found.status,) = limit_key_use.status_of([found.pk], most=_MAX_WAITING + 1)  # type: ignore[union-attr]  # for the columns
        return found

    def get_fields(self, request: HttpRequest, obj: LimitKey | None = None) -> Any:
        return ("key", *(_STATE if obj else ()), *_LIMITS, "override_until")

    def get_readonly_fields(self, request: HttpRequest, obj: LimitKey | None = None) -> Any:
        if obj is None:
            return ()
        if self.has_change_permission(request, obj):
            return ("key", *_STATE)
        return ("key", *_STATE, "overridden")

    def get_fieldsets(self, request: HttpRequest, obj: LimitKey | None = None) -> Any:
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": ("key", *_STATE, "overridden")})]
        override = {
            "fields": (*_LIMITS, "override_until"),
            "description": _(
                "Each limit that you give replaces that limit of the jobs; their other limits "
                "still apply. Leave all empty to end the override."
            ),
        }
        return [
            (None, {"fields": ("key", *(_STATE if obj else ()))}),
            (_("Override"), override),
        ]

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[LimitKey], search_term: str
    ) -> tuple[QuerySet[LimitKey], bool]:
        text = search_term.strip()
        if text:
            found = queryset.filter(key__startswith=text)
            if settings().admin_redact or not payload_permission.may_see(request):
                # Otherwise a search could find out how a hidden key begins.
                found = found.filter(pk__in=_visible(request, _keys(found)))
            return found, False
        return queryset.filter(limit_keys.is_restricted()), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: LimitKey | None = None) -> bool:
        return self.has_view_permission(request, obj) and Scope.ADMIN in granted_scopes(request)

    def has_view_permission(self, request: HttpRequest, obj: LimitKey | None = None) -> bool:
        if not request.user.has_perm("ojs_limits.view_limitkey"):
            return False
        # Unlike the list, the page of a key cannot hide a part of it: its address has the key.
        return obj is None or _is_visible(request, obj.pk)

    def has_delete_permission(self, request: HttpRequest, obj: LimitKey | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return self.has_scope(request, Scope.OPERATOR)

    def save_model(self, request: HttpRequest, obj: LimitKey, form: Any, change: bool) -> None:
        limit_keys.override(obj.pk, form.limits(), until=form.cleaned_data["override_until"])

    @admin.display(description=gettext_lazy("key"), ordering="key")
    def shown_key(self, row: LimitKey) -> str:
        return row.shown  # type: ignore[attr-defined, no-any-return]  # of the list

    def may_select(self, obj: LimitKey) -> bool:
        return self.shown_key(obj) == obj.pk

    @admin.display(description=gettext_lazy("limits"))
    def in_force(self, row: LimitKey) -> str:
        return limits_in_words(_status(row).policy) or pgettext("limits", "none")

    @admin.display(description=gettext_lazy("active"))
    def active(self, row: LimitKey) -> str:
        return grouped(_status(row).use.active)

    @admin.display(description=gettext_lazy("waiting"))
    def waiting(self, row: LimitKey) -> str:
        number = _status(row).waiting
        if number > _MAX_WAITING:
            return _("more than %(count)s") % {"count": grouped(_MAX_WAITING)}
        return grouped(number)

    @admin.display(description=gettext_lazy("at its limit"))
    def at_limit(self, row: LimitKey) -> str:
        if row.limited_since is None:
            return self.get_empty_value_display()
        return _("%(limit)s, for %(duration)s") % {
            "limit": row.limited_by,
            "duration": duration(abs(timezone.now() - row.limited_since)),
        }

    @admin.display(description=gettext_lazy("paused"))
    def paused(self, row: LimitKey) -> str:
        left = None if row.paused_until is None else row.paused_until - timezone.now()
        if left is None or left.total_seconds() <= 0:
            return self.get_empty_value_display()
        return _("for %(duration)s") % {"duration": duration(left)}

    @admin.display(description=gettext_lazy("rescheduled"))
    def rescheduled(self, row: LimitKey) -> str:
        # The waiting jobs include rescheduled ones, even those that are due much later.
        until = row.rescheduled_until
        left = None if until is None else until - timezone.now()
        if left is None or left.total_seconds() <= 0:
            return self.get_empty_value_display()
        return _("due within %(duration)s") % {"duration": duration(left)}

    @admin.display(description=gettext_lazy("dropped"))
    def drops(self, row: LimitKey) -> str:
        if row.dropped_at is None:
            return self.get_empty_value_display()
        ago = timezone.now() - row.dropped_at
        if ago > claims_by_key.DROPPED_WITHIN:
            return self.get_empty_value_display()
        values = {"number": grouped(row.dropped), "ago": duration(abs(ago))}
        return _("%(number)s, the last %(ago)s ago") % values

    @admin.display(description=gettext_lazy("override"))
    def overridden(self, row: LimitKey) -> str:
        if not row.is_in_force:
            return self.get_empty_value_display()
        limits = limits_in_words(row.override)
        if row.override_until is None:
            return limits
        return _("%(limits)s, until %(time)s") % {
            "limits": limits,
            "time": absolute_time(row.override_until),
        }

    @admin.action(description=gettext_lazy("Pause…"), permissions=["operate"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[LimitKey]) -> HttpResponse:
        return self.start_action(request, "pause", _keys(queryset))

    @admin.action(description=gettext_lazy("Resume"), permissions=["operate"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[LimitKey]) -> HttpResponse:
        return self.start_action(request, "resume", _keys(queryset))

    @admin.action(description=gettext_lazy("Remove overrides"), permissions=["change"])
    def remove_overrides(self, request: HttpRequest, queryset: QuerySet[LimitKey]) -> None:
        keys = _visible(request, _keys(queryset))
        done = sum(map(limit_keys.remove_override, keys))
        text = ngettext("%(count)d override removed.", "%(count)d overrides removed.", done)
        text %= {"count": done}
        self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)


def _keys(queryset: QuerySet[LimitKey]) -> list[str]:
    return list(queryset.order_by("pk").values_list("pk", flat=True)[: keyset.COUNT_LIMIT])


def _status(row: LimitKey) -> KeyStatus:
    status: KeyStatus = row.status  # type: ignore[attr-defined]  # of the list or the page
    return status


def _visible(request: HttpRequest, keys: Iterable[str]) -> list[str]:
    """Return the keys that the user may see in full."""
    return [key for key in keys if _is_visible(request, key)]


def _is_visible(request: HttpRequest, key: str) -> bool:
    return limit_key_text.shown(request, key) == key
