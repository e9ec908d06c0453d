"""Numbers, times and links as the operator's pages show them. Nothing is marked as safe."""

from datetime import datetime, timedelta
from typing import Any

from django import template
from django.contrib.admin.utils import quote
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html

from django_ojs.admin.formatting import DASH, duration, number, short
from django_ojs.spec import times

register = template.Library()

#: Models whose pages show jobs, to whoever may look at jobs.
_JOBS = ("deadletter", "bulkoperation")

#: What has no permission of its own: who may see the one may see the other.
_SEEN_WITH = {"deadletter": "job", "bulkoperation": "job"}

register.filter("ojs_number", number)
register.filter("ojs_short", short)
register.filter("ojs_duration", duration)


@register.filter("ojs_percent")
def percent(share: float | None) -> str:
    """Show a share of one as whole percents."""
    return DASH if share is None else f"{share * 100:.0f}\u202f%"


@register.filter("ojs_bytes")
def size(value: int | None) -> str:
    """Show a size by powers of 1024."""
    if value is None:
        return DASH
    for unit, sign in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:.1f}".removesuffix(".0") + f"\u202f{sign}"
    return f"{value}\u202fB"


@register.simple_tag
def ojs_width(share: float | None) -> str:
    """Return a share of one as the width of a bar; more than all is all."""
    return f"{min(1.0, max(0.0, share or 0.0)) * 100:.1f}%"


@register.simple_tag
def ojs_part(some: int, whole: int) -> str:
    """Return a part of a whole as the width of a bar."""
    return ojs_width(some / whole) if whole else "0%"


@register.simple_tag
def ojs_time(moment: datetime | None, form: str = "ago") -> str:
    """Show a time by how far away it is; the time itself is its tooltip.

    `form` is `ago` ("3 min ago", "in 3 min"), `age` ("3 min") or `clock` ("14:05:09 UTC").
    """
    if not isinstance(moment, datetime):
        return DASH
    away = timezone.now() - moment
    text = duration(abs(away))
    if form == "clock":
        text = f"{timezone.localtime(moment):%H:%M:%S %Z}"
    elif form == "ago":
        text = f"{text} ago" if away >= timedelta(0) else f"in {text}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        times.format_timestamp(moment),
        f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}",
        text,
    )


@register.simple_tag(takes_context=True)
def ojs_link(context: Context, model: str, key: Any, text: Any = None, css: str = "") -> str:
    """Link to the page of an object, if this admin has it and the user may see it."""
    shown = key if text is None else text
    address = _address(context, model, "change", quote(key))
    if not address:
        return format_html(
            "<span{}>{}</span>", format_html(' class="{}"', css) if css else "", shown
        )
    return format_html(
        '<a href="{}"{}>{}</a>', address, format_html(' class="{}"', css) if css else "", shown
    )


@register.simple_tag(takes_context=True)
def ojs_address(context: Context, model: str, what: str = "changelist", *args: Any) -> str:
    """Return the address of a model's page, or nothing if there is none for this user."""
    return _address(context, model, what, *args)


def _address(context: Context, model: str, what: str, *args: Any) -> str:
    request = getattr(context, "request", None)
    user = getattr(request, "user", None)
    kind = _SEEN_WITH.get(model, model)
    if user is None or not (
        user.has_perm(f"django_ojs.view_{kind}") or user.has_perm(f"django_ojs.change_{kind}")
    ):
        return ""
    site = getattr(request, "current_app", None)
    try:
        return reverse(f"admin:django_ojs_{model}_{what}", args=args, current_app=site)
    except NoReverseMatch:
        return ""
