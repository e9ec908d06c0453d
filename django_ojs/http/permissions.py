"""The DRF permission of the routes. They are closed by default."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from django_ojs.http.access import required_access
from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.scopes import Scope


class HasScope(BasePermission):
    """Requires the scope that `view.needs` has for the method.

    Raises Unauthenticated without credentials, PermissionDenied without the scope. A method that
    the view has and `needs` does not name is denied to every caller.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        access = required_access(request)
        method = request.method or ""
        scope = _scope(view, method)
        if scope is not None:
            access.check(scope)
        elif method != "OPTIONS" and method in view.allowed_methods:
            raise PermissionDenied("No scope allows this method here.")
        return True


def _scope(view: Any, method: str) -> Scope | None:
    needs: dict[str, Scope] = getattr(view, "needs", {})
    # Django serves HEAD with the handler of GET.
    return needs.get(method) or (needs.get("GET") if method == "HEAD" else None)
