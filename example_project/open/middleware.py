"""What keeps the open server where it belongs, whatever it is started with."""

import ipaddress
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden


def check() -> None:
    """Raise ImproperlyConfigured without DEBUG: nobody shall open an API by mistake."""
    if not settings.DEBUG:
        raise ImproperlyConfigured(
            "The open server lets everybody do everything. It is for development only and needs "
            "DEBUG: set OJS_DEMO_DEBUG=1."
        )


def loopback_only(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Refuse requests from other machines. Raises ImproperlyConfigured without DEBUG."""
    check()

    def middleware(request: HttpRequest) -> HttpResponse:
        if not _is_loopback(request.META.get("REMOTE_ADDR", "")):
            return HttpResponseForbidden("This server is for its own machine only.\n")
        return get_response(request)

    return middleware


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
