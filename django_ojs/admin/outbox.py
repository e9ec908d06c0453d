"""The outbox: what waits, what was refused and why, and the way to send it again."""

from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html

from django_ojs.admin.formatting import duration
from django_ojs.admin.payloads import HIDDEN, may_see, redacted
from django_ojs.conf import settings
from django_ojs.models import OutboxEntry
from django_ojs.models.outbox import Delivery
from django_ojs.operations.access import audit
from django_ojs.operations.enqueue import outbox
from django_ojs.spec import json

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[OutboxEntry]
    _Paginator = Paginator[OutboxEntry]
else:
    _Admin, _Paginator = admin.ModelAdmin, Paginator

#: Rows that are counted and can be turned to, the newest; a busy site sends millions a day.
MOST: Final = 10_000

#: Rows among which a type or a queue is looked for: no index knows these.
LOOK: Final = 100_000

_REASON: Final = 120

_SHOWN = (
    *("job_id", "type", "queue", "destination", "state", "attempts", "error_code"),
    *("error_message", "created_at", "next_try_at", "sent_at"),
)


class Newest(_Paginator):
    """Pages of the newest rows: neither counts all of them nor turns to what is further back."""

    @cached_property
    def count(self) -> int:
        """Count as far as pages go."""
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[:MOST].count())


class _Filter(admin.SimpleListFilter):
    """One value of a column, of those that are offered and no other."""

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[OutboxEntry]
    ) -> QuerySet[OutboxEntry]:
        """Leave the others out."""
        name = self.value()
        if name not in {offered for offered, _ in self.lookup_choices}:
            return queryset
        return queryset.filter(**{str(self.parameter_name): name})


class StateFilter(_Filter):
    """What became of them."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the states."""
        return [(each.value, str(each.label)) for each in Delivery]


class DestinationFilter(_Filter):
    """Where to, of what the settings name; to ask the table would read all of it."""

    title = "destination"
    parameter_name = "destination"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the destinations."""
        return [(each.name, each.name) for each in settings().outbox]


@admin.register(OutboxEntry)
class OutboxEntryAdmin(_Admin):
    """Rows to look at, to send again and to delete. Nobody writes one by hand."""

    list_display = (
        *("type", "queue", "destination", "state", "reason", "attempts", "then", "created_at"),
    )
    list_filter = (StateFilter, DestinationFilter)
    search_fields = ("job_id",)  # For the box; `get_search_results` says what it finds.
    search_help_text = (
        "A job's id; or a type or a queue, the whole of it, among the newest. "
        f"The newest {MOST:,} rows are listed."
    )
    ordering = ("-pk",)
    sortable_by = ()
    actions = ("requeue",)
    paginator = Newest
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["django_ojs/admin.css"]}

    def get_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        """Show the arguments to those who may see what jobs carry, and to no one else."""
        return (*_SHOWN, "carries") if may_see(request) else _SHOWN

    def get_readonly_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        """All of them."""
        return self.get_fields(request, obj)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Refuse all but the filters: Django would let an address search in the arguments."""
        return lookup in (StateFilter.parameter_name, DestinationFilter.parameter_name)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[OutboxEntry], search_term: str
    ) -> tuple[QuerySet[OutboxEntry], bool]:
        """Find an id by its index, a type or a queue among the newest rows."""
        text = search_term.strip()
        if not text:
            return queryset, False
        try:
            return queryset.filter(job_id=UUID(text)), False
        except ValueError:
            last = queryset.model.objects.using(queryset.db).order_by("-pk").values_list("pk")
            newest = next(iter(last[:1]), (0,))[0]
            near = queryset.filter(pk__gt=newest - LOOK)
            return near.filter(type=text) | near.filter(queue=text), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: an enqueue makes them."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        """Nobody: what was enqueued is sent as it is."""
        return False

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """Whoever has the permission of this action."""
        return bool(request.user.has_perm("django_ojs.requeue_outboxentry"))

    @admin.display(description="reason", empty_value="")
    def reason(self, entry: OutboxEntry) -> str:
        """Say why it is not there yet, or never will be."""
        text = ": ".join(filter(None, (entry.error_code, entry.error_message)))
        return text if len(text) <= _REASON else f"{text[:_REASON]}…"

    @admin.display(description="then")
    def then(self, entry: OutboxEntry) -> str:
        """Say when it went, or when it is tried next."""
        now = timezone.now()
        if entry.sent_at is not None:
            return f"sent {duration(abs(now - entry.sent_at))} ago"
        if entry.state == Delivery.REFUSED:
            return "waits for somebody"
        if entry.next_try_at is not None and entry.next_try_at > now:
            return f"tried in {duration(entry.next_try_at - now)}"
        return "is next"

    @admin.display(description="job")
    def carries(self, entry: OutboxEntry) -> str:
        """Show what is sent, without what the settings hide."""
        try:
            text = json.pretty(redacted(json.loads_stored(entry.envelope, exact_integers=True)))
        except (ValueError, RecursionError):
            text = HIDDEN if settings().admin_redact else entry.envelope
        return format_html('<pre class="ojs-pre">{}</pre>', text)

    @admin.action(description="Send refused jobs again", permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> None:
        """Put refused jobs at the end of the line; what is not refused is skipped."""
        # "All of them" may be millions, of which one request takes a part.
        refused = queryset.filter(state=Delivery.REFUSED).order_by("pk")
        keys = list(refused.values_list("pk", flat=True)[: MOST + 1])
        skipped = queryset.exclude(state=Delivery.REFUSED).order_by()[:MOST].count()
        done = outbox.requeue(keys[:MOST], using=queryset.db)
        skipped += len(keys[:MOST]) - done
        audit.note(
            "outbox.requeued", principal=request.user.get_username(), jobs=done, skipped=skipped
        )
        text = f"{done} will be sent again."
        if skipped:
            text += f" {skipped} skipped: not refused."
        if len(keys) > MOST:
            text += " There are more; choose them again."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
