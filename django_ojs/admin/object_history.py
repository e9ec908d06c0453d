"""The page *History* of an object: who did what to it, as far as extensions know."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from django_ojs.hooks import registry

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object


class ObjectHistory(_Admin):
    """Shows what extensions know. Django's log has only what was done in the admin.

    Nothing is written to Django's log: an act is recorded once, by the operation.
    """

    # Django looks for a template of the model's own app only.
    object_history_template = "admin/django_ojs/object_history.html"

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show who did what to an object, newest first."""
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            about = (request, str(self.opts.model_name), unquote(object_id))
            response.context_data["parts"] = registry.brought("history", *about)
        return response  # A redirect, if there is no such object.

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing."""
