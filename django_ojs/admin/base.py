"""What all pages of an operator share: rights, addresses, actions.

Behaviour lives in mixins over `ModelAdmin`, so that a theme's own ModelAdmin does as well; see
`django_ojs.admin.register`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from django_ojs.admin.actions import Action
from django_ojs.admin.confirmation import perform_asked
from django_ojs.http.access import scopes_of
from django_ojs.spec.scopes import Scope, complete
from django_ojs.storage import database

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """An action on one object: a link to the page that asks, or a form of one button."""

    label: str
    address: str
    key: str
    question: str
    asks: bool
    destructive: bool


class Pages(_Admin):
    """Pages in place of Django's list and form.

    A subclass says what its `list_page` and `object_page` show. Nothing is added, changed or
    deleted but by an action.
    """

    #: What can be done here; see `Action`.
    operations: ClassVar[tuple[Action, ...]] = ()

    # Django's own actions run on checkboxes of its list, which is not here.
    actions: Any = None
    show_full_result_count = False

    # --- rights -----------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Add nothing by a form."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Change nothing by a form."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Delete nothing by a form."""
        return False

    def has_operate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say whether the user may operate: the HTTP API's scope."""
        return self.may_have(request, Scope.OPERATOR)

    def has_administer_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say whether the user may do everything."""
        return self.may_have(request, Scope.ADMIN)

    def has_payload_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say whether the user may see arguments, results and backtraces."""
        user: Any = request.user
        return bool(user.has_perm("django_ojs.view_payload_job"))

    def may_have(self, request: HttpRequest, scope: Scope) -> bool:
        """Say whether the user may see these pages and has a scope."""
        return self.has_view_permission(request) and scope in complete(scopes_of(request.user))

    def may(self, request: HttpRequest, action: Action) -> bool:
        """Say whether the user may do this."""
        return self.may_have(request, action.needs)

    # --- addresses --------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add `do/<name>/` to Django's addresses."""
        return [
            path(
                "do/<slug:name>/",
                self.wrapped(self.act_view),
                name=self.named("do", prefixed=False),
            ),
            *super().get_urls(),
        ]

    def wrapped(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Let only those in who may use this admin at all."""
        return self.admin_site.admin_view(view)

    def named(self, what: str, *, prefixed: bool = True) -> str:
        """Return the name of an address: `changelist`, `change`, `do` and what a page adds."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_{what}"
        return f"admin:{name}" if prefixed else name

    def address(self, what: str, *args: Any) -> str:
        """Return the address of a page of this model, in this admin."""
        return reverse(self.named(what), args=args, current_app=self.admin_site.name)

    def back(self, request: HttpRequest) -> str:
        """Return where an action leads afterwards: where it was asked for, if that is in here."""
        wanted = request.POST.get("next") or request.GET.get("next") or ""
        if wanted.startswith("/") and url_has_allowed_host_and_scheme(
            wanted, allowed_hosts=None, require_https=request.is_secure()
        ):
            return wanted
        return self.address("changelist")

    # --- pages ------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Look where the jobs are."""
        return super().get_queryset(request).using(database.alias())

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Answer with the list."""
        raise NotImplementedError

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Answer with the page of one object. Raises Http404."""
        raise Http404

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list to those who may see it."""
        self._let_in(request)
        return self.list_page(request)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one object to those who may see it."""
        self._let_in(request)
        if object_id is None:  # The form for a new one.
            raise PermissionDenied
        try:
            return self.object_page(request, unquote(object_id))
        except Http404 as gone:  # An old link, mostly: what to do next is on no bare page.
            return self.render(
                request, "gone", "Not here", {"why": gone.args[0] if gone.args else ""}, status=404
            )

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Refuse: what can be deleted is deleted by an action."""
        raise PermissionDenied

    def act_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask, or act. Raises PermissionDenied, Http404 for what is no action here."""
        self._let_in(request)
        action = next((each for each in self.operations if each.name == name), None)
        if action is None:
            raise Http404
        if not self.may(request, action):
            raise PermissionDenied
        return perform_asked(self, request, action)

    def found(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        """Return what an action is for, by key; None for what is not there."""
        wanted = {key: self._as_key(key) for key in keys}
        possible = [each for each in wanted.values() if each is not None]
        there = {each.pk: each for each in self.get_queryset(request).filter(pk__in=possible)}
        return {key: None if each is None else there.get(each) for key, each in wanted.items()}

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return an object for Django's own pages; None for what can be no key."""
        key = self._as_key(object_id)
        return None if key is None else self.get_queryset(request).filter(pk=key).first()

    def _as_key(self, text: str) -> Any:
        # What no column can hold must not reach the database.
        try:
            return None if "\0" in text else self.opts.pk.to_python(text)
        except (ValidationError, ValueError, OverflowError):
            return None

    def offered(self, request: HttpRequest, obj: Any = None) -> list[Action]:
        """Return the actions the user may take, those alone that this object allows."""
        return [
            action
            for action in self.operations
            if self.may(request, action)
            and (action.applies(obj) if obj is not None else action.many)
        ]

    def buttons(self, request: HttpRequest, obj: Any) -> list[Button]:
        """Return a button for each of them; see button.html."""
        key = str(obj.pk)
        asked = urlencode({"key": key, "next": request.get_full_path()})
        return [
            Button(
                label=action.label,
                address=self.address("do", action.name),
                key=key,
                question=self.address("do", action.name) + f"?{asked}",
                asks=action.asks,
                destructive=action.destructive,
            )
            for action in self.offered(request, obj)
        ]

    def bulk(self, request: HttpRequest) -> list[Button]:
        """Return a button for each action that can be done to what is ticked in a list."""
        return [
            Button(
                label=action.label,
                address=self.address("do", action.name),
                key="",
                question="",
                asks=action.asks,
                destructive=action.destructive,
            )
            for action in self.offered(request)
        ]

    def render(
        self,
        request: HttpRequest,
        template: str,
        title: str,
        context: Mapping[str, Any],
        *,
        status: int = 200,
    ) -> HttpResponse:
        """Answer with one of the templates in `django_ojs/admin/`."""
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"django_ojs/admin/{template}.html",
            {
                **self.admin_site.each_context(request),
                "title": title,
                "opts": self.opts,
                "here": request.get_full_path(),
                "list_address": self.address("changelist"),
                "may_operate": self.has_operate_permission(request),
                "may_administer": self.has_administer_permission(request),
                "may_see_payload": self.has_payload_permission(request),
                **context,
            },
            status=status,
        )

    def _let_in(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied


__all__ = ["Button", "Pages"]
