"""Authentication: API keys for programs, sessions for staff (ojs-security §6).

`OJS["HTTP_AUTHENTICATION"]` lists the classes that are tried, in order: these, or any other
authentication class of Django REST framework.
"""

from copy import copy
from functools import lru_cache
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, QueryDict
from django.utils.module_loading import import_string
from rest_framework import authentication, exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.settings import api_settings

from django_ojs.conf import settings
from django_ojs.http.access import API_KEY, FULL_ACCESS, Access, scopes_of
from django_ojs.operations.access import api_keys
from django_ojs.spec.errors import PermissionDenied

CHALLENGE = 'Bearer realm="ojs"'


class ApiKeyAuthentication(BaseAuthentication):
    """A key in `Authorization: Bearer ojs_…`.

    A bearer token of another format is left to the next class. Raises Unauthenticated for a key
    that is wrong, TokenExpired for one that is expired or revoked.
    """

    def authenticate(self, request: Request | HttpRequest) -> tuple[Any, Access] | None:
        """Return the access that the key gives, None without a key."""
        # WSGI decodes headers as Latin-1, which accepts any bytes; a key is ASCII.
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token.startswith(api_keys.MARK):
            return None
        key = api_keys.find(token)
        shown = f"{key.name} ({key.prefix})"
        names = (key.name, key.principal)
        return _no_user(), _access(shown, names, tuple(key.scopes), tuple(key.queues))

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class StaffSessionAuthentication(authentication.SessionAuthentication):
    """The session of a user who is active and staff, with Django's CSRF protection."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """Return the user, once the CSRF token is checked; None without a staff session."""
        user = getattr(request._request, "user", None)
        if not (getattr(user, "is_active", False) and getattr(user, "is_staff", False)):
            return None
        self.enforce_csrf(request)
        return user, None

    def enforce_csrf(self, request: Request) -> None:
        """Raise PermissionDenied where the CSRF token is missing or wrong."""
        # The token must be in the header. Django would also look for it in a form, and so parse any
        # body that a page of another site sends.
        without_form: Any = copy(request._request)
        without_form.POST = QueryDict()
        try:
            super().enforce_csrf(without_form)
        except exceptions.PermissionDenied:
            # Django's reasons may quote the Origin header.
            raise PermissionDenied(
                "The CSRF check failed.",
                hint="A request with a session must carry its X-CSRFToken; a program uses a key.",
            ) from None


class AllowAny(BaseAuthentication):
    """Gives every caller full access: the API is open. `manage.py check` warns of it."""

    def authenticate(self, request: object) -> tuple[Any, Access]:
        return _no_user(), FULL_ACCESS


#: The classes that work with Django's request, without DRF's wrapper.
_WITHOUT_WRAPPER: Final = frozenset({ApiKeyAuthentication, AllowAny})


def authenticate(request: Any) -> None:
    """Authenticate a request by the first class of HTTP_AUTHENTICATION that recognizes it.

    It sets `user` and `auth` of Django's request, as DRF does, and what `access_of` returns. Raises
    what a class raises, and ImproperlyConfigured for a path that names no class. The request is
    unauthenticated then, whatever user a middleware has found.
    """
    found = None
    try:
        found = _found(request)
    finally:
        request.user, request.auth = found or (_no_user(), None)
        request.ojs_access = _access_of(request.user, request.auth)


def _found(request: Any) -> tuple[Any, Any] | None:
    # What `force_authenticate` of DRF's test client sets.
    forced = getattr(request, "_force_auth_user", None), getattr(request, "_force_auth_token", None)
    if forced != (None, None):
        return forced
    wrapped = None
    for each in authentication_classes():
        # A wrapper takes longer than these classes themselves.
        if wrapped is None and each not in _WITHOUT_WRAPPER:
            wrapped = Request(request)
        found: tuple[Any, Any] | None = each().authenticate(wrapped or request)
        if found is not None:
            return found
    return None


def authentication_classes() -> tuple[type[BaseAuthentication], ...]:
    """Return the classes of the setting HTTP_AUTHENTICATION.

    Raises ImproperlyConfigured for a path that names no authentication class.
    """
    return _imported(settings().http_authentication)


def _access_of(user: Any, auth: object) -> Access | None:
    """Return the Access that a class has set, or else what the user's Django permissions give."""
    if isinstance(auth, Access):
        return auth
    if user is None or not user.is_authenticated:
        return None
    return Access(name=str(user), scopes=scopes_of(user), identity=f"user {user}")


@lru_cache(maxsize=128)
def _access(
    shown: str, names: tuple[str, str], scopes: tuple[str, ...], queues: tuple[str, ...]
) -> Access:
    """Return the access of a key from its row, and keep it for the next request."""
    return Access(
        name=shown,
        scopes=api_keys.known_scopes(scopes),
        queues=frozenset(queues) or None,
        identity=f"{API_KEY}{names[1]}",
        producers=frozenset(names),
    )


def _no_user() -> Any:
    # DRF sets this user for an unauthenticated request, and a key is no user. Its default needs
    # django.contrib.auth, which a site of programs may not have.
    is_default = "UNAUTHENTICATED_USER" not in api_settings.user_settings
    if is_default and not apps.is_installed("django.contrib.auth"):
        return None
    make: Any = api_settings.UNAUTHENTICATED_USER
    return make() if make else None


@lru_cache(maxsize=8)
def _imported(paths: tuple[str, ...]) -> tuple[type[BaseAuthentication], ...]:
    found = []
    for path in paths:
        try:
            cls = import_string(path)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"OJS['HTTP_AUTHENTICATION'] names {path!r}, which cannot be imported."
            ) from error
        if not (isinstance(cls, type) and issubclass(cls, BaseAuthentication)):
            raise ImproperlyConfigured(
                f"OJS['HTTP_AUTHENTICATION'] names {path!r}, which is no authentication class of "
                "Django REST framework."
            )
        found.append(cls)
    return tuple(found)
