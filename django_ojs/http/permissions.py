"""Closed by default: a request needs a caller, and the caller the scope of the view."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from django_ojs.http import exceptions
from django_ojs.http.access import Scope, access_of
from django_ojs.spec.errors import PermissionDenied


class HasScope(BasePermission):
    """Let in who has the scope that `view.needs` asks for the method.

    Raises Unauthenticated without a caller, PermissionDenied without the scope. A method the view
    answers and does not name in `needs` is for nobody.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the caller."""
        access = access_of(request)
        if access is None:
            raise exceptions.nobody()
        method = request.method or ""
        needed = _needed(view, method)
        if needed is not None:
            access.check(needed)
        elif method != "OPTIONS" and method in view.allowed_methods:
            raise PermissionDenied("Nobody may use this method here.")
        return True


def _needed(view: Any, method: str) -> Scope | None:
    needs: dict[str, Scope] = getattr(view, "needs", {})
    # Django answers HEAD with what answers GET.
    return needs.get(method) or (needs.get("GET") if method == "HEAD" else None)
