"""Lists of a ModelAdmin: columns, filters, search and actions are Django's, but not the paging.

Django counts all rows and finds a page by its offset, which is slow for a large table.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import (
    display_for_field,
    display_for_value,
    label_for_field,
    lookup_field,
)
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.urls import NoReverseMatch, URLPattern
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_ojs.admin.actions import MAX_OBJECTS
from django_ojs.admin.base import read_page
from django_ojs.admin.formatting import StrOrPromise
from django_ojs.admin.object_history import ObjectHistory
from django_ojs.admin.operator_views import parsed_key, with_operator, with_way_back
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.operations import keyset

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = object

_CURSORS = ("after", "before")


class ListedRow(NamedTuple):
    """A row of a list: its object, the URL of its page, and each column with its value."""

    obj: Any
    url: str
    cells: list[tuple[str, str, Any]]
    is_selectable: bool


class RowList(ChangeList):
    """A list of Django's that reads one page by its cursor."""

    model_admin: "OperatorViews"
    list_display: Any

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.queried_at = timezone.now()
        super().__init__(request, *args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))
        self.actions = [
            (name, text) for name, text in self.model_admin.get_action_choices(request, []) if name
        ]

    def get_filters_params(self, params: Any = None) -> Any:
        # The cursor is no filter. Without it, the links of the filters lead to the first page.
        for each in _CURSORS:
            self.params.pop(each, None)
            self.filter_params.pop(each, None)
        return super().get_filters_params(params)

    def get_results(self, request: HttpRequest) -> None:
        order = self.model_admin.order
        with timed_queries() as query:
            found, self.paging = read_page(
                request,
                query,
                str(self.opts.verbose_name_plural),
                lambda wanted: keyset.page(self.queryset, order, wanted),
            )
        self.unread = query.unread
        self.result_list = found.rows if found else []
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = bool(self.result_list)
        self.is_narrowed = bool(self.query or self.has_active_filters)

    def filters(self) -> list[tuple[str, list[Any]]]:
        """Return the title and the choices of each filter."""
        return [(str(each.title), list(each.choices(self))) for each in self.filter_specs]

    def labels(self) -> list[str]:
        """Return the names of the columns."""
        return [
            capfirst(str(label_for_field(name, self.model, self.model_admin)))
            for name in self._columns()
        ]

    def rows(self) -> Iterator[ListedRow]:
        """Yield the row of each object on the page."""
        labels = self.labels()
        empty = self.model_admin.get_empty_value_display()
        for obj in self.result_list:
            url, cells = "", []
            with suppress(NoReverseMatch):
                url = add_preserved_filters(
                    {"preserved_filters": self.preserved_filters, "opts": self.opts},
                    self.url_for_result(obj),
                )
            for name, label in zip(self._columns(), labels, strict=True):
                field, shown, value = lookup_field(name, obj, self.model_admin)
                if field is not None:
                    text = display_for_field(value, field, empty)
                else:
                    text = display_for_value(value, getattr(shown, "empty_value_display", empty))
                cells.append((name, label, "" if text == empty else text))
            yield ListedRow(obj, url, cells, self.model_admin.may_select(obj))

    def _columns(self) -> list[str]:
        return [name for name in self.list_display if name != "action_checkbox"]


class OperatorViews(ObjectHistory):
    """Each page of a ModelAdmin runs with its user as the operator. Its list is a `RowList`."""

    #: The order of the list, for its cursors.
    order: ClassVar[keyset.Order]
    #: What to do next, shown if the list is empty without a search or a filter.
    when_empty: ClassVar[StrOrPromise]
    sortable_by = ()

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

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RowList

    def may_select(self, obj: Any) -> bool:
        """Return whether the row of an object has a checkbox."""
        return True

    def response_action(
        self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run an action on the selected rows with valid keys; Django's method fails for others.

        Newer versions of Django also pass the location of the action.
        """
        selected = [
            key
            for key in request.POST.getlist(ACTION_CHECKBOX_NAME)
            if parsed_key(self.model, key) is not None
        ]
        given = request.POST.copy()
        given.setlist(ACTION_CHECKBOX_NAME, selected)
        request.POST = given  # type: ignore[assignment]  # Django's own is immutable
        if given.get("action") == "delete_selected" and given.get("select_across") == "1":
            queryset = self._some_of(request, queryset)
        return super().response_action(request, queryset, *args, **kwargs)

    def _some_of(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the first objects, and tell the user if there are more.

        Django's page asks about each object by name, and sends its key in a field of its own. It
        rejects a request with more than a thousand fields.
        """
        keys = list(queryset.order_by("pk").values_list("pk", flat=True)[: MAX_OBJECTS + 1])
        if len(keys) > MAX_OBJECTS:
            self.message_user(request, _("There are more; select them again."), messages.WARNING)
        return queryset.filter(pk__in=keys[:MAX_OBJECTS])
