"""The views of the admin name their user, for the audit trail."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from django_ojs.admin.object_history import ObjectHistory
from django_ojs.extension import Actor
from django_ojs.models import ActorKind
from django_ojs.operations import keyset
from django_ojs.operations.access import operator

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _Admin, _Paginator = object, Paginator

View = Callable[..., HttpResponse]


class OperatorViews(ObjectHistory):
    """Each page of a ModelAdmin runs with its user as the operator."""

    # Django looks for templates of the model's own app only.
    change_form_template = "admin/django_ojs/change_form.html"
    change_list_template = "admin/django_ojs/change_list.html"
    delete_confirmation_template = "admin/django_ojs/delete_confirmation.html"
    delete_selected_confirmation_template = "admin/django_ojs/delete_selected_confirmation.html"

    def get_urls(self) -> list[URLPattern]:
        patterns = super().get_urls()
        for pattern in patterns:
            if pattern.name:  # A pattern without a name only redirects.
                pattern.callback = with_way_back(self, with_operator(pattern.callback))
        return patterns

    def response_action(
        self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run an action on the selected rows with valid keys; Django's method rejects other keys.

        Newer versions of Django pass the place of the action as well.
        """
        selected = [
            key
            for key in request.POST.getlist(ACTION_CHECKBOX_NAME)
            if parsed_key(self.model, key) is not None
        ]
        given = request.POST.copy()
        given.setlist(ACTION_CHECKBOX_NAME, selected)
        request.POST = given  # type: ignore[assignment]  # Django's own is immutable
        return super().response_action(request, queryset, *args, **kwargs)


class FirstRowsPaginator(_Paginator):
    """Counts only the first rows of Django's list, so that no page has a large offset."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return keyset.count_up_to(rows)[0]


def view_name(model: type[Model], view: str) -> str:
    """Return the name of a page of a model, for `reverse`; it depends on the app of the model."""
    return f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"


def parsed_key(model: type[Model], text: str) -> Any:
    """Return the primary key that a text stands for; None for one that the column cannot hold."""
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
    """Show a user without the permission a page with the navigation, not a bare sentence."""

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
