"""What the operator's pages share: permissions, URLs, actions and paging.

The classes are mixins over `ModelAdmin`, so that a theme's own ModelAdmin can be their base; see
`django_ojs.admin.register`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.db.models import Model, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _

from django_ojs.admin import current_findings, databases, payloads
from django_ojs.admin.actions import Action, perform
from django_ojs.admin.confirmation import Confirmation
from django_ojs.admin.object_history import ObjectHistory
from django_ojs.admin.operator_views import parsed_key, with_operator
from django_ojs.admin.query_timeout import Unread
from django_ojs.conf import settings
from django_ojs.formatting import StrOrPromise
from django_ojs.http.access import scopes_of
from django_ojs.models import Overview
from django_ojs.spec.scopes import Scope, complete
from django_ojs.storage import database, find_database, replica

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object

T = TypeVar("T")

#: The cookie of a browser that has changed something, until the replica has it for sure.
CHANGED: Final = "ojs_changed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A link to a confirmation page, or a form of one button that posts `key`.

    `is_link`: it leads to another page and changes nothing.
    """

    label: StrOrPromise
    url: str
    destructive: bool
    needs_confirmation: bool = True
    key: str = ""
    is_link: bool = False


class OperatorModelAdmin(ObjectHistory):
    """Pages in place of Django's list and form; only actions change anything.

    A subclass implements `list_page` and `object_page`.
    """

    object_actions: ClassVar[tuple[Action, ...]] = ()

    #: The codename of the permission to view the pages, if the model has none of its own.
    view_permission: ClassVar[str | None] = None

    #: Whether the list, and the page of an object, may be read from the replica.
    lists_from_replica: ClassVar[bool] = False
    objects_from_replica: ClassVar[bool] = False

    #: Where jobs are in several databases: the page has figures, which are those of all;
    shows_all: ClassVar[bool] = False
    #: an object is found by its key in whichever it is; or an action runs in each of them.
    objects_are_located: ClassVar[bool] = False
    actions_run_in_each: ClassVar[bool] = False

    # Django's actions run on the checkboxes of Django's list, which these pages do not have.
    actions: Any = None
    show_full_result_count = False

    # --- permissions ------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if self.view_permission is None:
            return super().has_view_permission(request, obj)
        user: Any = request.user
        return bool(user.has_perm(f"django_ojs.{self.view_permission}"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_scope(self, request: HttpRequest, scope: Scope) -> bool:
        """Return whether the user may view these pages and has a scope of the HTTP API."""
        return self.has_view_permission(request) and scope in granted_scopes(request)

    def _check_view_permission(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    # --- URLs -------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        return [
            self.pattern("action/<slug:name>/", self.action_view, "action", is_action=True),
            *super().get_urls(),
        ]

    def pattern(
        self,
        route: str,
        view: Any,
        name: str,
        *,
        from_replica: bool = False,
        is_action: bool = False,
        object_parameter: str = "",
    ) -> URLPattern:
        """Return the URL pattern of a page that only users of the admin may open.

        `from_replica`: the page may be read from the replica. `is_action`: it concerns the
        databases of the objects that it names, or all. `object_parameter`: the name of the
        parameter that has the key of the object which it concerns, if any.
        """
        name = f"{self.opts.app_label}_{self.opts.model_name}_{name}"

        @wraps(view)
        def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if is_action and (self.objects_are_located or self.actions_run_in_each):
                found: HttpResponse = view(request, *args, **kwargs)
            else:
                data = request.POST if request.method == "POST" else request.GET
                found = self._read(
                    request,
                    lambda: view(request, *args, **kwargs),
                    from_replica=from_replica,
                    key=data.get(object_parameter) or None,
                )
            if request.method == "POST":
                _remember_change(request, found)
            return found

        pattern: URLPattern = path(
            route, self.admin_site.admin_view(with_operator(page)), name=name
        )
        return pattern

    def url(self, name: str, *args: Any, model: str | None = None) -> str:
        """Return a URL of this model's pages, or of another model's, in this admin site."""
        view = f"admin:{self.opts.app_label}_{model or self.opts.model_name}_{name}"
        return reverse(view, args=args, current_app=self.admin_site.name)

    def return_url(self, request: HttpRequest) -> str:
        """Return where an action redirects to: its `next` if that is a path here, or the list."""
        url = request.POST.get("next") or request.GET.get("next") or ""
        if url.startswith("/") and url_has_allowed_host_and_scheme(
            url, allowed_hosts=None, require_https=request.is_secure()
        ):
            return url
        return self.url("changelist")

    # --- objects ----------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model.primary.all()
        return rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        return self.objects_by_key(request, [object_id])[object_id]

    def objects_by_key(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        """Return the object of each key, or None for a key without an object."""
        parsed = {key: self._parse_key(key) for key in keys}
        possible = [key for key in parsed.values() if key is not None]
        rows = self._objects(request, possible) if possible else ()
        found = {row.pk: row for row in rows}
        return {text: found.get(key) for text, key in parsed.items()}

    def _objects(self, request: HttpRequest, keys: list[Any]) -> Iterable[Any]:
        if not (self.objects_are_located and database.is_to_be_chosen()):
            return list(self.get_queryset(request).filter(pk__in=keys))
        found: list[Any] = []
        there = find_database.of_all(self.model, keys)
        for alias in dict.fromkeys(there.values()):
            of_alias = [key for key in keys if there.get(key) == alias]
            with database.using(alias):
                found += self.get_queryset(request).filter(pk__in=of_alias)
        return found

    def _parse_key(self, text: str) -> Any:
        return parsed_key(self.model, text)

    # --- pages ------------------------------------------------------------------------------------

    def list_page(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Return the page of one object. Raises Http404."""
        raise Http404

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self._check_view_permission(request)
        return self._read(
            request, lambda: self.list_page(request), from_replica=self.lists_from_replica
        )

    def _read(
        self,
        request: HttpRequest,
        page: Callable[[], HttpResponse],
        *,
        from_replica: bool,
        key: str | None = None,
    ) -> HttpResponse:
        """Return a page of the databases that it concerns; see `read` and `databases.page_of`."""
        if not database.is_to_be_chosen():
            return read(request, page, from_replica=from_replica)
        alias = None
        if key is not None and self.objects_are_located:
            alias = find_database.of(self.model, self._parse_key(key))
        return databases.page_of(request, page, shows_all=self.shows_all, alias=alias)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        self._check_view_permission(request)
        if object_id is None:  # The form of a new object.
            raise PermissionDenied
        try:
            return self._read(
                request,
                lambda: self.object_page(request, unquote(object_id)),
                from_replica=self.objects_from_replica,
                key=unquote(object_id),
            )
        except Http404 as error:  # Mostly an old link: the page says where to go next.
            reason = error.args[0] if error.args else ""
            return self.render(request, "not_found", _("Not found"), {"reason": reason}, status=404)
        except Error:
            if not (self.objects_are_located and database.is_to_be_chosen()):
                raise
            # The one that may have it does not respond.
            reason = _("The database was busy; try again.")
            return self.render(request, "not_found", _("Not found"), {"reason": reason}, status=503)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        raise PermissionDenied

    def action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Run an action, or show its confirmation page. Raises PermissionDenied, Http404."""
        self._check_view_permission(request)
        action = next((action for action in self.object_actions if action.name == name), None)
        if action is None:
            raise Http404
        if not self.has_scope(request, action.scope):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        data = request.POST if request.method == "POST" else request.GET
        keys = list(dict.fromkeys(data.getlist("key")))
        # The button of a list posts here without a confirmation: only confirm.html has `confirmed`.
        confirmed = request.method == "POST" and (
            not action.needs_confirmation or "confirmed" in request.POST
        )
        return self._run_or_confirm(
            request, action, keys, confirmed=confirmed, next_url=self.return_url(request)
        )

    def start_action(self, request: HttpRequest, name: str, keys: Sequence[str]) -> HttpResponse:
        """Run an action from Django's list, or show its confirmation page first.

        Django has checked the permission; see `ModelAdmin.actions`.
        """
        (action,) = (each for each in self.object_actions if each.name == name)
        confirmed, here = not action.needs_confirmation, request.get_full_path()
        return self._run_or_confirm(request, action, keys, confirmed=confirmed, next_url=here)

    def _run_or_confirm(
        self,
        request: HttpRequest,
        action: Action,
        keys: Sequence[str],
        *,
        confirmed: bool,
        next_url: str,
    ) -> HttpResponse:
        if problem := action.problem_with(keys):
            self.message_user(request, problem, "WARNING")
            return HttpResponseRedirect(next_url)
        objects = self.objects_by_key(request, keys)
        confirmation = Confirmation(action, objects, request.POST if confirmed else None)
        if confirmed and confirmation.is_valid():
            result = perform(
                action, request, objects, confirmation.values, in_each=self.actions_run_in_each
            )
            if not confirmation.shows_error_of(result):
                self.message_user(request, result.message(action), result.level)
                return HttpResponseRedirect(next_url)
        context = confirmation.context(request)
        context |= {"url": self.url("action", action.name), "next": next_url}
        return self.render(request, "confirm", action.label, context)

    # --- what templates need ----------------------------------------------------------------------

    def allowed_actions(self, request: HttpRequest) -> list[Action]:
        return [action for action in self.object_actions if self.has_scope(request, action.scope)]

    def buttons(self, request: HttpRequest, obj: Any, *names: str) -> list[Button]:
        """Return the buttons of an object's page: what the user and the object's state allow.

        `names`: of these actions only.
        """
        query = urlencode({"key": obj.pk, "next": request.get_full_path()})
        return [
            Button(
                label=action.label,
                url=self.url("action", action.name) + f"?{query}" * action.needs_confirmation,
                destructive=action.destructive,
                needs_confirmation=action.needs_confirmation,
                key=str(obj.pk),
            )
            for action in self.allowed_actions(request)
            if action.applies_to(obj) and (not names or action.name in names)
        ]

    def buttons_of(self, request: HttpRequest, obj: Any, *names: str) -> list[Button]:
        """Return buttons of the page of another model's object, which lead back to this page."""
        page = self._viewable(request, type(obj))
        return [] if page is None else page.buttons(request, obj, *names)

    def link(
        self,
        request: HttpRequest,
        label: StrOrPromise,
        model: type[Model],
        *key: str,
        query: str = "",
    ) -> list[Button]:
        """Return a link to a page of another model, or none for a user who may not see it."""
        page = self._viewable(request, model)
        if page is None:
            return []
        url = page.url("change", *map(quote, key)) if key else page.url("changelist")
        return [Button(label=label, url=url + query, destructive=False, is_link=True)]

    def end_maintenance(self, request: HttpRequest) -> list[Button]:
        """Return the button that ends maintenance mode."""
        overview = Overview(pk="1")
        overview.in_maintenance = True  # type: ignore[attr-defined]  # for `applies_to`
        return self.buttons_of(request, overview, "end-maintenance")

    def _viewable(self, request: HttpRequest, model: type[Model]) -> "OperatorModelAdmin | None":
        """Return the pages of a model on this site, if it has them and the user may view them."""
        try:
            page: Any = self.admin_site.get_model_admin(model)
        except NotRegistered:
            return None
        may_view = isinstance(page, OperatorModelAdmin) and page.has_view_permission(request)
        return page if may_view else None

    def selection_buttons(
        self, request: HttpRequest, examples: Sequence[Any] | None = None
    ) -> list[Button]:
        """Return the buttons for the selected rows of a list.

        `examples`: only actions that apply to one of these objects.
        """
        return [
            Button(
                label=action.label,
                url=self.url("action", action.name),
                destructive=action.destructive,
                needs_confirmation=action.needs_confirmation,
            )
            for action in self.allowed_actions(request)
            if action.multiple and (examples is None or any(map(action.applies_to, examples)))
        ]

    def render(
        self,
        request: HttpRequest,
        template: str,
        title: StrOrPromise,
        context: Mapping[str, Any],
        *,
        status: int = 200,
    ) -> HttpResponse:
        """Return a page from a template in `django_ojs/admin/`."""
        request.current_app = self.admin_site.name
        unread = context.get("unread") or Unread()
        if "maintenance_mode" in context:  # None: this page has tried to read it.
            maintenance = context["maintenance_mode"]
        else:
            maintenance = current_findings.maintenance(unread)
        return TemplateResponse(
            request,
            f"django_ojs/admin/{template}.html",
            {
                **self.admin_site.each_context(request),
                "title": title,
                "opts": self.opts,
                "admin_site": self.admin_site,
                "here": request.get_full_path(),
                "queried_at": timezone.now(),
                "source": replica.source(),
                "list_url": self.url("changelist"),
                "may_see_payload": payloads.has_permission(request),
                "maintenance_mode": maintenance,
                "maintenance_buttons": self.end_maintenance(request)
                if maintenance is not None and maintenance.enabled
                else (),
                **context,
                "unread": unread,
            },
            status=status,
        )


def read(
    request: HttpRequest, page: Callable[[], HttpResponse], *, from_replica: bool
) -> HttpResponse:
    """Return a page, read from the replica if it may be and this browser has changed nothing yet.

    What the browser changed is on a replica that is used once READ_MAX_LAG is over.
    """
    is_read = request.method in ("GET", "HEAD") and CHANGED not in request.COOKIES
    if not (from_replica and is_read and replica.is_configured()):
        return page()

    def rendered() -> HttpResponse:
        response = page()
        if isinstance(response, TemplateResponse):
            response.render()  # The queries of the template are part of the page.
        return response

    return replica.read(rendered, missing=(Http404,))


def _remember_change(request: HttpRequest, response: HttpResponse) -> None:
    if replica.is_configured():
        response.set_cookie(
            CHANGED,
            "1",
            max_age=math.ceil(settings().read_max_lag.total_seconds()),
            secure=request.is_secure(),
            httponly=True,
            samesite="Lax",
        )


def granted_scopes(request: HttpRequest) -> frozenset[Scope]:
    """Return the scopes that the user's permissions give, included scopes as well."""
    return complete(scopes_of(request.user))


def page_of(rows: Sequence[T], number: str, size: int) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the rows of a page, and its context for pages.html; a wrong number is a near one."""
    last = max(1, -(-len(rows) // size))
    valid = number.isascii() and number.isdigit() and len(number) < 9
    page = min(last, max(1, int(number))) if valid else 1
    context = {"previous_page": page - 1, "next_page": page + 1 if page < last else 0}
    return rows[(page - 1) * size : page * size], context
