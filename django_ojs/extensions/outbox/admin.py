"""The outbox: its jobs, why some were rejected, and an action to send these again."""

from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.admin import limit_key_text
from django_ojs.admin.formatting import duration, grouped
from django_ojs.admin.model_lists import OperatorViews
from django_ojs.admin.payload_permission import may_see
from django_ojs.conf import of, settings
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.extensions.outbox.models import Delivery, OutboxEntry
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.operations import keyset
from django_ojs.operations.access import operator
from django_ojs.operations.jobs.redaction import HIDDEN, redacted
from django_ojs.spec import json
from django_ojs.storage import database

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[OutboxEntry]
else:
    _Admin = admin.ModelAdmin

#: A search for a type or a queue reads this many of the newest rows, because no index covers them.
SCAN_LIMIT: Final = 100_000

_MAX_REASON: Final = 120

_SHOWN = (
    *("job_id", "type", "queue", "destination", "state", "attempts", "error_code"),
    *("error_message", "created_at", "next_try_at", "sent_at"),
)


class _ChoiceFilter(admin.SimpleListFilter):
    """A filter by one of its choices; any other value is ignored."""

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[OutboxEntry]
    ) -> QuerySet[OutboxEntry]:
        name = self.value()
        if name not in {choice for choice, _label in self.lookup_choices}:
            return queryset
        return queryset.filter(**{str(self.parameter_name): name})


class StateFilter(_ChoiceFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(each.value, str(each.label)) for each in Delivery]


class DestinationFilter(_ChoiceFilter):
    """A filter by a destination of the settings.

    A query for the destinations in the table would read all of it.
    """

    title = gettext_lazy("destination")
    parameter_name = "destination"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(each.name, each.name) for each in of(OutboxSettings).outbox]


class DatabaseFilter(_ChoiceFilter):
    """A filter by the alias of the outbox; with `WRONG_DATABASE` there may be several outboxes."""

    title = gettext_lazy("database")
    parameter_name = "outbox_of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        # Django leaves out a filter that has no choices.
        aliases = outbox.aliases()
        return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []

    def choices(self, changelist: Any) -> Any:
        # No list shows all outboxes together. Without a choice, the first one is shown.
        _all, *choices = super().choices(changelist)
        if self.value() is None:
            choices[0]["selected"] = True
        return choices

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[OutboxEntry]
    ) -> QuerySet[OutboxEntry]:
        return queryset  # `get_queryset` has chosen the alias, also for the page of one entry.


def _database_of(request: HttpRequest) -> str:
    """Return the alias whose outbox a page of the admin is about."""
    of_list = QueryDict(request.GET.get("_changelist_filters", ""))
    name = str(DatabaseFilter.parameter_name)
    given = request.GET.get(name) or of_list.get(name)
    return given if given and given in outbox.aliases() else database.alias()


def _search_help() -> str:
    text = _("A job's id, or a complete type or queue among the newest %(scanned)s rows.")
    return text % {"scanned": grouped(SCAN_LIMIT)}


class OutboxEntryAdmin(OperatorViews, _Admin):
    """Only enqueues create entries; here they are viewed, requeued and deleted."""

    place = 120
    list_display = (
        *("type", "queue", "destination", "state", "reason", "attempts", "next_step", "created_at"),
    )
    list_filter = (StateFilter, DestinationFilter, DatabaseFilter)
    search_fields = ("job_id",)  # This shows the search box; `get_search_results` does the search.
    search_help_text = lazy(_search_help, str)()
    ordering = ("-pk",)
    order: ClassVar = {"-pk": int}
    when_empty = gettext_lazy(
        'No job waits to be sent. OJS["OUTBOX"] names the servers to which jobs are sent.'
    )
    actions = ("requeue",)
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["django_ojs/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxEntry]:
        # As on all pages, the primary is read: a replica may not have what an action has just
        # changed.
        return super().get_queryset(request).using(_database_of(request))

    def get_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        return (*_SHOWN, "envelope_json") if may_see(request) else _SHOWN

    def get_readonly_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        return self.get_fields(request, obj)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        # Otherwise a query string could search in the arguments.
        filters: Any = self.list_filter
        return lookup in {each.parameter_name for each in filters}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[OutboxEntry], search_term: str
    ) -> tuple[QuerySet[OutboxEntry], bool]:
        text = search_term.strip()
        if not text:
            return queryset, False
        try:
            return queryset.filter(job_id=UUID(text)), False
        except ValueError:
            last = queryset.model.objects.using(queryset.db).order_by("-pk").values_list("pk")
            newest = next(iter(last[:1]), (0,))[0]
            recent = queryset.filter(pk__gt=newest - SCAN_LIMIT)
            return recent.filter(type=text) | recent.filter(queue=text), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: OutboxEntry) -> None:
        with database.atomic(), transaction.atomic(using=obj._state.db):
            super().delete_model(request, obj)
            operator.acted(
                "outbox.deleted", object_type="outbox_entry", job=str(obj.job_id), type=obj.type
            )

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> None:
        with database.atomic(), transaction.atomic(using=queryset.db):
            number = queryset.delete()[0]
            operator.acted("outbox.deleted", object_type="outbox_entry", jobs=number)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("ojs_outbox.requeue_outboxentry"))

    @admin.display(description=gettext_lazy("reason"), empty_value="")
    def reason(self, entry: OutboxEntry) -> str:
        text = ": ".join(filter(None, (entry.error_code, entry.error_message)))
        return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"

    @admin.display(description=gettext_lazy("next"))
    def next_step(self, entry: OutboxEntry) -> str:
        now = timezone.now()
        if entry.sent_at is not None and entry.state == Delivery.SENT:
            return _("sent %(duration)s ago") % {"duration": duration(abs(now - entry.sent_at))}
        if entry.state == Delivery.REJECTED:
            return _("rejected: requeue or delete")
        if entry.next_try_at is not None and entry.next_try_at > now:
            return _("next try in %(duration)s") % {"duration": duration(entry.next_try_at - now)}
        return _("sent next")

    @admin.display(description=gettext_lazy("job"))
    def envelope_json(self, entry: OutboxEntry) -> str:
        try:
            job = json.loads_stored(entry.envelope, exact_integers=True)
            text = json.pretty(redacted(limit_key_text.in_document(job)))
        except (ValueError, RecursionError):
            text = HIDDEN if settings().admin_redact else entry.envelope
        return format_html('<pre class="ojs-pre">{}</pre>', text)

    @admin.action(description=gettext_lazy("Requeue rejected jobs"), permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> None:
        # All rows may be selected, perhaps millions, so one request requeues only some of them.
        rejected = queryset.filter(state=Delivery.REJECTED).order_by("pk")
        keys = list(rejected.values_list("pk", flat=True)[: keyset.COUNT_LIMIT + 1])
        skipped = queryset.exclude(state=Delivery.REJECTED).order_by()[: keyset.COUNT_LIMIT].count()
        with database.atomic(), transaction.atomic(using=queryset.db):
            done = outbox.requeue(keys[: keyset.COUNT_LIMIT], using=queryset.db)
            if done:
                operator.acted("outbox.requeued", object_type="outbox_entry", jobs=done)
        skipped += len(keys[: keyset.COUNT_LIMIT]) - done
        sentences = [ngettext("%(count)d requeued.", "%(count)d requeued.", done) % {"count": done}]
        if skipped:
            text = ngettext(
                "%(count)d skipped: not rejected.", "%(count)d skipped: not rejected.", skipped
            )
            sentences.append(text % {"count": skipped})
        if len(keys) > keyset.COUNT_LIMIT:
            sentences.append(_("There are more; select them again."))
        self.message_user(
            request, " ".join(sentences), messages.WARNING if skipped else messages.SUCCESS
        )
