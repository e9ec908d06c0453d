"""Restrict the open server to development and to this machine."""

import ipaddress
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden


def check() -> None:
    """Raise ImproperlyConfigured without DEBUG: an API must not be opened by mistake."""
    if not settings.DEBUG:
        raise ImproperlyConfigured(
            "The open server has no authentication. It is for development only and needs "
            "DEBUG: set OJS_DEMO_DEBUG=1."
        )


def loopback_only(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Reject requests from other machines. Raises ImproperlyConfigured without DEBUG."""
    check()

    def middleware(request: HttpRequest) -> HttpResponse:
        if not _is_loopback(request.META.get("REMOTE_ADDR", "")):
            return HttpResponseForbidden("This server serves its own machine only.\n")
        return get_response(request)

    return middleware


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
