"""The page *History* of an object: its entries of the audit trail."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from django_ojs.extensions.audit.admin_rows import rows_about
from django_ojs.extensions.limits import admin_text as limit_key_text

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object

_MAX_ROWS: Final = 100


class ObjectHistory(_Admin):
    """Shows the audit trail in place of Django's log, which has only what was done in the admin.

    Nothing is written to Django's log: an act is recorded once, by the operation.
    """

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show who did what to an object, newest first."""
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            response.context_data["rows"] = rows_about(
                str(self.opts.model_name),
                unquote(object_id),
                _MAX_ROWS,
                shown_key=partial(limit_key_text.shown, request),
            )
        return response  # A redirect, if there is no such object.

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing."""
