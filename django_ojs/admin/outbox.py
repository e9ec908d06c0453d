"""The outbox: what waits, what was refused and why, and the way to send it again."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from django_ojs.models import OutboxEntry
from django_ojs.operations import audit, outbox

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[OutboxEntry]
else:
    _Admin = admin.ModelAdmin

_SHOWN = (
    *("job_id", "type", "queue", "destination", "state", "attempts", "error_code"),
    *("error_message", "created_at", "next_try_at", "sent_at"),
)


@admin.register(OutboxEntry)
class OutboxEntryAdmin(_Admin):
    """Rows to look at, to send again and to delete. Nobody writes one by hand."""

    list_display = (
        *("job_id", "type", "queue", "destination", "state", "attempts", "error_code"),
        *("created_at", "next_try_at", "sent_at"),
    )
    list_filter = ("state", "destination")
    search_fields = ("job_id__exact", "type__exact", "queue__exact")
    search_help_text = "A job's id, a type or a queue, the whole of it."
    ordering = ("-pk",)
    actions = ("requeue",)
    show_full_result_count = False
    list_per_page = 50

    def get_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        """Show the arguments to those who may read jobs, and to no one else."""
        return (*_SHOWN, "envelope") if request.user.has_perm("django_ojs.view_job") else _SHOWN

    def get_readonly_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        """All of them."""
        return self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: an enqueue makes them."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        """Nobody: what was enqueued is sent as it is."""
        return False

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """Whoever has the permission of this action."""
        return bool(request.user.has_perm("django_ojs.requeue_outboxentry"))

    @admin.action(description="Send refused jobs again", permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> None:
        """Put refused jobs at the end of the line; what is not refused is skipped."""
        keys = list(queryset.values_list("pk", flat=True))
        done = outbox.requeue(keys, using=queryset.db)
        skipped = len(keys) - done
        audit.note(
            "outbox.requeued", principal=request.user.get_username(), jobs=done, skipped=skipped
        )
        text = f"{done} will be sent again."
        if skipped:
            text += f" {skipped} skipped: not refused."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
