"""What the operator's pages share: permissions, URLs, actions and paging.

The classes are mixins over `ModelAdmin`, so that a theme's own ModelAdmin can be their base; see
`django_ojs.admin.register`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
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
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import payload_permission
from django_ojs.admin.actions import Action, perform
from django_ojs.admin.confirmation import Confirmation
from django_ojs.admin.formatting import StrOrPromise
from django_ojs.admin.object_history import ObjectHistory
from django_ojs.admin.operator_views import parsed_key, view_name, with_operator, with_way_back
from django_ojs.admin.query_timeout import TimedQueries, Unread, timed
from django_ojs.hooks import registry
from django_ojs.http.access import scopes_of
from django_ojs.models import Overview
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.operations.maintenance import mode
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope, complete

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object

T = TypeVar("T")

#: The number of rows on each page of a list that is paged by cursors.
PER_PAGE: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A link to a confirmation page, or a form with one button that posts `key`.

    If `is_link`, it leads to another page and changes nothing.
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

    def check_view_permission(self, request: HttpRequest) -> None:
        """Raise PermissionDenied for a user who may not view these pages."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    # --- URLs -------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        patterns = super().get_urls()
        for pattern in patterns:
            if pattern.name:  # A pattern without a name only redirects.
                pattern.callback = with_way_back(self, pattern.callback)
        # An object may be named `action`, so its pages come before the actions.
        pages = ("_change", "_history")
        first = [each for each in patterns if each.name and each.name.endswith(pages)]
        return [
            *registry.brought("page_urls", self),
            *first,
            self.pattern("action/<slug:name>/", self.action_view, "action"),
            *(each for each in patterns if each not in first),
        ]

    def pattern(self, route: str, view: Any, name: str) -> URLPattern:
        """Return the URL pattern of a page that only users of the admin may open."""
        name = view_name(self.model, name).removeprefix("admin:")
        pattern: URLPattern = path(
            route,
            self.admin_site.admin_view(with_way_back(self, with_operator(view))),
            name=name,
        )
        return pattern

    def url(self, name: str, *args: Any, model: type[Model] | None = None) -> str:
        """Return a URL of this model's pages, or of another model's, in this admin site."""
        view = view_name(self.model if model is None else model, name)
        return reverse(view, args=args, current_app=self.admin_site.name)

    def return_url(self, request: HttpRequest) -> str:
        """Return where an action redirects to: its `next` if that is a local path, or the list."""
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
        return list(self.get_queryset(request).filter(pk__in=keys))

    def _parse_key(self, text: str) -> Any:
        return parsed_key(self.model, text)

    # --- pages ------------------------------------------------------------------------------------

    def list_page(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Return the page of one object, or raise Http404."""
        raise Http404

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.check_view_permission(request)
        return self.list_page(request)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        self.check_view_permission(request)
        if object_id is None:  # The form of a new object.
            raise PermissionDenied
        try:
            return self.object_page(request, unquote(object_id))
        except Http404 as error:  # The link is often an old one, so the page says where to go next.
            reason = error.args[0] if error.args else ""
            return self.render(request, "not_found", _("Not found"), {"reason": reason}, status=404)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        raise PermissionDenied

    def action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Run an action, or show its confirmation page. Raises PermissionDenied, Http404."""
        self.check_view_permission(request)
        action = next((action for action in self.object_actions if action.name == name), None)
        if action is None:
            raise Http404
        data = request.POST if request.method == "POST" else request.GET
        keys = list(dict.fromkeys(data.getlist("key")))
        return self.run_action(request, action, keys)

    def run_action(self, request: HttpRequest, action: Action, keys: Sequence[str]) -> HttpResponse:
        """Run an action, or show its confirmation page, which posts to the same URL.

        Pages of extensions use this method too. Raises PermissionDenied.
        """
        if not self.has_scope(request, action.scope):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        # The buttons of lists post here too. Only the form of confirm.html has `confirmed`.
        confirmed = request.method == "POST" and (
            not action.needs_confirmation or "confirmed" in request.POST
        )
        return self._run_or_confirm(
            request,
            action,
            keys,
            confirmed=confirmed,
            url=request.path,
            next_url=self.return_url(request),
        )

    def start_action(self, request: HttpRequest, name: str, keys: Sequence[str]) -> HttpResponse:
        """Run an action from Django's list, or show its confirmation page first.

        Django has checked the permission; see `ModelAdmin.actions`.
        """
        (action,) = (each for each in self.object_actions if each.name == name)
        confirmed, here = not action.needs_confirmation, request.get_full_path()
        url = self.url("action", name)
        return self._run_or_confirm(
            request, action, keys, confirmed=confirmed, url=url, next_url=here
        )

    def _run_or_confirm(
        self,
        request: HttpRequest,
        action: Action,
        keys: Sequence[str],
        *,
        confirmed: bool,
        url: str,
        next_url: str,
    ) -> HttpResponse:
        if problem := action.problem_with(keys):
            self.message_user(request, problem, "WARNING")
            return HttpResponseRedirect(next_url)
        objects = self.objects_by_key(request, keys)
        confirmation = Confirmation(action, objects, request.POST if confirmed else None)
        if confirmed and confirmation.is_valid():
            result = perform(action, request, objects, confirmation.values)
            if not confirmation.shows_error_of(result):
                self.message_user(request, result.message(action), result.level)
                return HttpResponseRedirect(next_url)
        context = confirmation.context(request)
        context |= {"url": url, "next": next_url}
        return self.render(request, "confirm", action.label, context)

    def panels(
        self, request: HttpRequest, query: TimedQueries, obj: Any
    ) -> list[tuple[Any, Mapping[str, Any]]]:
        """Return the panels that extensions add to an object's page, each with its context."""
        panels = [panel for panel in registry.brought("panels") if isinstance(obj, panel.kind)]
        return [
            (panel, context)
            for panel in sorted(panels, key=lambda panel: panel.place)
            if (context := panel.read(self, request, query, obj)) is not None
        ]

    # --- what templates need ----------------------------------------------------------------------

    def allowed_actions(self, request: HttpRequest) -> list[Action]:
        return [action for action in self.object_actions if self.has_scope(request, action.scope)]

    def buttons(self, request: HttpRequest, obj: Any, *names: str) -> list[Button]:
        """Return the buttons of an object's page: what the user and the object's state allow.

        With `names`, only the buttons of these actions are returned.
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

    def link_to(self, request: HttpRequest, obj: Model) -> list[Button]:
        """Return a link to the page of an object, or none for a user who may not see it."""
        page = self._viewable(request, type(obj))
        if page is None or not page.has_view_permission(request, obj):
            return []
        label = capfirst(str(obj._meta.verbose_name))
        return self.link(request, label, type(obj), str(obj.pk))

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

        With `examples`, only actions that apply to one of these objects have a button.
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
        if "maintenance_mode" in context:  # A page that could not read it has None here.
            maintenance = context["maintenance_mode"]
        else:
            maintenance = timed(unread, gettext_noop("maintenance mode"), mode.status)
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
                "list_url": self.url("changelist"),
                "may_see_payload": payload_permission.has_permission(request),
                "maintenance_mode": maintenance,
                "maintenance_buttons": self.end_maintenance(request)
                if maintenance is not None and maintenance.enabled
                else (),
                **context,
                "unread": unread,
            },
            status=status,
        )


def granted_scopes(request: HttpRequest) -> frozenset[Scope]:
    """Return the scopes that the user's permissions give, with the scopes that these include."""
    return complete(scopes_of(request.user))


def read_page(
    request: HttpRequest, query: TimedQueries, name: str, read: Callable[[PageRequest], Page[T]]
) -> tuple[Page[T] | None, dict[str, Any]]:
    """Read the page after or before the cursor in the URL; return it with its context.

    For an invalid cursor, return the first page, with an error in its context. `name` is the name
    of the query.
    """
    after, before = request.GET.get("after"), request.GET.get("before")
    cursor, errors = after or before or None, []
    wanted = PageRequest(limit=PER_PAGE, cursor=cursor, backwards=bool(before and not after))
    try:
        page = query(name, lambda: read(wanted))
    except InvalidRequest:
        errors.append(_("This page does not exist any more; this is the first page."))
        wanted = PageRequest(limit=PER_PAGE)
        page = query(name, lambda: read(wanted))
    started = wanted.cursor is not None
    return page, {"page": page, "started": started, "errors": errors}


def page_of(rows: Sequence[T], number: str, size: int) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the rows of a page, and its context for pages.html.

    A number out of range leads to the nearest page; any other text, or more than 8 digits, to the
    first one.
    """
    last = max(1, -(-len(rows) // size))
    valid = number.isascii() and number.isdigit() and len(number) < 9
    page = min(last, max(1, int(number))) if valid else 1
    context = {"previous_page": page - 1, "next_page": page + 1 if page < last else 0}
    return rows[(page - 1) * size : page * size], context
