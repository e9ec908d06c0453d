"""Filters and tags of the operator's pages. Nothing is marked as safe."""

from datetime import datetime, timedelta
from typing import Any, Final

import django
from django import template
from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote
from django.template import RequestContext
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext, pgettext_lazy

from django_ojs.admin import navigation
from django_ojs.admin.formatting import (
    THIN,
    absolute_time,
    decimal,
    duration,
    number,
    octave,
    short,
)
from django_ojs.admin.operator_views import view_name
from django_ojs.admin.query_timeout import Unread, timed
from django_ojs.formatting import DASH
from django_ojs.models.base import model_named
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queue_rows import RESERVED
from django_ojs.spec import times

register = template.Library()

register.filter("ojs_number", number)
register.filter("ojs_short", short)
register.filter("ojs_duration", duration)
register.filter("ojs_octave", octave)


@register.filter("ojs_capped")
def capped(value: int | None, has_more: bool) -> str:
    """Show a number. If there are more than were counted, a plus sign follows it: 10 000+."""
    return f"{number(value)}+" if has_more else number(value)


@register.filter("ojs_percent")
def percent(share: float | None) -> str:
    """Show a share in percent. A small share is not rounded to 0 %, nor a large one to 100 %."""
    if share is None:
        return DASH
    if 0 < share < 0.005:
        return "<1\u202f%"
    return ">99\u202f%" if 0.995 <= share < 1 else f"{share * 100:.0f}\u202f%"


_SIZES: Final = (
    (2**30, pgettext_lazy("size", "%(number)s GiB")),
    (2**20, pgettext_lazy("size", "%(number)s MiB")),
    (2**10, pgettext_lazy("size", "%(number)s KiB")),
    (1, pgettext_lazy("size", "%(number)s B")),
)


@register.filter("ojs_bytes")
def size(value: int | None) -> str:
    """Show a size by powers of 1024."""
    if value is None:
        return DASH
    for unit, text in _SIZES:
        if value >= unit or unit == 1:
            shown = decimal(f"{value / unit:.1f}".removesuffix(".0"))
            return str(text % {"number": shown}).replace(" ", THIN)
    return DASH


@register.simple_tag
def ojs_width(share: float | None) -> str:
    """Return a share from 0 to 1 as the width of a bar in percent."""
    return f"{min(1.0, max(0.0, share or 0.0)) * 100:.1f}%"


@register.simple_tag
def ojs_part(some: int, whole: int) -> str:
    return ojs_width(some / whole) if whole else "0%"


@register.simple_tag
def ojs_time(moment: datetime | None, form: str = "ago") -> str:
    """Show a time relative to now; the tooltip has the absolute time.

    `form` is `ago` ("3 min ago", "in 3 min"), `age` ("3 min"), `clock` ("14:05:09 UTC") or `time`
    ("14:05:09", on another day "21 Nov 14:05:09").
    """
    if not isinstance(moment, datetime):
        return DASH
    away = timezone.now() - moment
    text = duration(abs(away))
    if form == "clock":
        text = f"{timezone.localtime(moment):%H:%M:%S %Z}"
    elif form == "time":
        local = timezone.localtime(moment)
        is_today = local.date() == timezone.localdate()
        # Translators: a format of Django for 21 Nov 14:05:09
        form = "H:i:s" if is_today else pgettext("format of a date", "d M H:i:s")
        text = date_format(local, form)
    elif form == "ago":
        is_past = away >= timedelta(0)
        text = (_("%(duration)s ago") if is_past else _("in %(duration)s")) % {"duration": text}
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        times.format_timestamp(moment),
        absolute_time(moment),
        text,
    )


@register.inclusion_tag("django_ojs/admin/breadcrumbs.html", takes_context=True)
def ojs_breadcrumbs(
    context: RequestContext, here: Any, parent: str = "", parent_url: str = ""
) -> dict[str, Any]:
    """Show where a page is, in the markup that this version of Django has styles for."""
    return {
        "opts": context["opts"],
        "is_list": django.VERSION >= (6, 1),
        "here": here,
        "parent": parent,
        "parent_url": parent_url,
    }


@register.inclusion_tag("django_ojs/admin/navigation.html", takes_context=True)
def ojs_navigation(context: RequestContext) -> dict[str, Any]:
    """Show the links to the pages, also on the pages that Django renders."""
    site = _site(context)
    opts = context.get("opts")
    if site is None or context.get("is_popup"):
        return {"entries": ()}
    found = navigation.entries(site, context.request, opts.model if opts else None)
    more = navigation.behind_more(found)
    return {
        "entries": found[: len(found) - len(more)],
        "more": more,
        "current": next((entry for entry in more if entry.current), None),
    }


@register.inclusion_tag("django_ojs/admin/maintenance_line.html", takes_context=True)
def ojs_maintenance(context: RequestContext) -> dict[str, Any]:
    """Show on pages that Django renders that maintenance mode is on, and link to the overview."""
    if context.get("is_popup"):
        return {"status": None}
    status = timed(Unread(), gettext_noop("maintenance mode"), mode.status)
    return {"status": status, "overview_url": ojs_url(context, "overview")}


def _site(context: RequestContext) -> Any:
    view: Any = getattr(context.request.resolver_match, "func", None)
    model_admin = getattr(view, "model_admin", None)
    return context.get("admin_site") or getattr(model_admin, "admin_site", None)


@register.simple_tag(takes_context=True)
def ojs_link(context: RequestContext, model: str, key: Any, text: Any = None) -> str:
    """Return a link to the page of an object, or its text alone for a user who may not see it.

    `*` of a worker and `_default` of an event are no queues, and have no page.
    """
    shown = key if text is None else text
    has_page = model != "queue" or key not in RESERVED
    url = ojs_url(context, model, "change", quote(key)) if has_page else ""
    return (
        format_html('<a href="{}">{}</a>', url, shown)
        if url
        else format_html("<span>{}</span>", shown)
    )


@register.simple_tag(takes_context=True)
def ojs_type_link(context: RequestContext, type: str, text: str | None = None) -> str:
    """Return a link to the page of a job type, or its text alone for a user who may not see it."""
    url = ojs_url(context, "job", "type")
    if not url:
        return format_html("<span>{}</span>", text or type)
    return format_html('<a href="{}?{}">{}</a>', url, urlencode({"type": type}), text or type)


@register.simple_tag(takes_context=True)
def ojs_url(context: RequestContext, model: str, name: str = "changelist", *args: Any) -> str:
    """Return the URL of a page of a model, or "" if this site or user has none."""
    site: admin.AdminSite | None = _site(context)
    if site is None:
        return ""
    try:
        found = model_named(model)
        model_admin = None if found is None else site.get_model_admin(found)
        if model_admin is None or not model_admin.has_view_or_change_permission(context.request):
            return ""
        return reverse(view_name(model_admin.model, name), args=args, current_app=site.name)
    except (NotRegistered, NoReverseMatch):  # The project's own ModelAdmin has fewer pages.
        return ""
