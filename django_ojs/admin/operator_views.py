"""The views of the admin name their user, for the audit trail."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_ojs.extension import Actor
from django_ojs.models import ActorKind
from django_ojs.operations.access import operator

View = Callable[..., HttpResponse]


def view_name(model: type[Model], view: str) -> str:
    """Return the name of a page of a model, for `reverse`; it depends on the app of the model."""
    return f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"


def parsed_key(model: type[Model], text: str) -> Any:
    """Return the primary key that a text stands for, or None if the column cannot hold it."""
    try:
        return None if "\0" in text else model._meta.pk.clean(text, None)
    except (ValidationError, ValueError, OverflowError):
        return None


def with_operator(view: View) -> View:
    """Name the user of a request as the operator of what the view changes."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with operator.acting(operator_of(request)):
            return view(request, *args, **kwargs)

    return wrapper


def with_way_back(page: Any, view: View) -> View:
    """Show a user without permission a page with the navigation, in place of Django's bare one."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except PermissionDenied:
            request.current_app = page.admin_site.name
            context = {
                **page.admin_site.each_context(request),
                "title": _("Permission denied"),
                "opts": page.opts,
                "admin_site": page.admin_site,
            }
            return TemplateResponse(request, "django_ojs/admin/denied.html", context, status=403)

    return wrapper


def operator_of(request: HttpRequest) -> Actor | None:
    if request.method in ("GET", "HEAD") or not request.user.is_authenticated:
        return None
    source = str(request.META.get("REMOTE_ADDR", ""))
    return Actor(kind=ActorKind.USER, name=request.user.get_username(), source_ip=source)
