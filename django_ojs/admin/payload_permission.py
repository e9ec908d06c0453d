"""Who sees arguments, results and errors: seeing them is a permission of its own."""

from typing import Any

from django.http import HttpRequest

from django_ojs.conf import settings


def has_permission(request: HttpRequest) -> bool:
    """Return whether the user may see arguments, results and backtraces."""
    user: Any = request.user
    return bool(user.has_perm("django_ojs.view_payload_job"))


def may_see(request: HttpRequest) -> bool:
    """Return whether the user may see payloads, and not all of them are redacted."""
    return "*" not in settings().admin_redact and has_permission(request)
