"""The base classes of the views: authentication, permissions, bodies and responses."""

from collections.abc import Iterable, Mapping, Sequence
from contextvars import Token
from typing import Any, ClassVar, Final, NoReturn

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from django_ojs import hooks
from django_ojs.extension import Actor
from django_ojs.http import compression, error_responses, headers, throttling
from django_ojs.http.access import API_KEY, Access, access_of, required_access
from django_ojs.http.authentication import authentication_classes
from django_ojs.http.parsers import discard_rest, read_object
from django_ojs.http.responses import MEDIA_TYPE, json_response
from django_ojs.models import ActorKind
from django_ojs.operations.access import known_names, operator
from django_ojs.spec import json
from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.scopes import Scope
from django_ojs.storage import database

#: What DRF keeps on each request; nothing here uses them.
_NO_NEGOTIATION: Final = BaseContentNegotiation()
_NO_RENDERER: Final = BaseRenderer()


class HasScope(BasePermission):
    """The DRF permission of the routes, which are closed by default.

    It requires the scope that `view.needs` has for the method.

    Raises Unauthenticated without credentials, PermissionDenied without the scope. A method that
    the view has and `needs` does not name is denied to every caller.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        access = required_access(request)
        method = request.method or ""
        needs: Mapping[str, Scope] = getattr(view, "needs", {})
        # Django serves HEAD with the handler of GET.
        scope = needs.get(method) or (needs.get("GET") if method == "HEAD" else None)
        if scope is not None:
            access.check(scope)
        elif method != "OPTIONS" and method in view.allowed_methods:
            raise PermissionDenied("No scope allows this method here.")
        return True


class OJSView(APIView):
    """A resource. Handlers return the object of the response, or an HttpResponse."""

    #: The scope that each method needs.
    needs: ClassVar[Mapping[str, Scope]] = {}

    #: The throttle of the caller, once that is known; None without a limit.
    throttle: throttling.CallerThrottle | None = None

    _acting: Token[Actor | None] | None = None
    _body_bytes = 0

    # Bodies are read by `body` and written by `json_response`.
    parser_classes = ()
    renderer_classes = ()
    # `openapi.yaml` describes these routes; a document that a project generates leaves them out.
    schema = None
    permission_classes: Sequence[type[BasePermission]] = (HasScope,)
    # The throttles of the project's own API do not apply to these routes; see `get_throttles`.
    throttle_classes = ()
    # The versions of the project's own API do not apply to these routes.
    versioning_class = None
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Wrap a request as DRF does, and set what is read often as attributes of the wrapper.

        DRF reads any other attribute from Django's request, after an AttributeError for each.
        """
        wrapped: Any = super().initialize_request(request, *args, **kwargs)
        wrapped.META, wrapped.method, wrapped.path = request.META, request.method, request.path
        return wrapped  # type: ignore[no-any-return]  # it accepts any attribute

    def get_content_negotiator(self) -> BaseContentNegotiation:
        return _NO_NEGOTIATION

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Return no headers: `finalize_response` adds them to each response."""
        return {}

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return the authenticators of the current settings, which tests override."""
        return [each() for each in authentication_classes()]

    def perform_authentication(self, request: Request) -> None:
        super().perform_authentication(request)
        self.throttle = throttling.of_caller(request)

    def get_throttles(self) -> list[BaseThrottle]:
        """Return the throttle of the setting HTTP_RATE_LIMIT, if requests are limited."""
        return [] if self.throttle is None else [self.throttle]

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """Negotiate nothing: there is one format, whatever Accept says (http-binding §4.3)."""
        return _NO_RENDERER, MEDIA_TYPE

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Return a response that conforms to the specification for every exception as well."""
        try:
            with database.hardly_waiting():
                response = super().dispatch(request, *args, **kwargs)
        except Exception as error:
            # DRF does not catch what get_authenticators and finalize_response raise.
            response = error_responses.error_response(request, error)
            headers.add_standard_headers(request, response)
        finally:
            if self._acting is not None:
                operator.end(self._acting)
        if request.method not in ("GET", "HEAD") and response.status_code < 400:
            hooks.call_served(hooks.registry.request_served)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the version of the specification before the permissions."""
        headers.check_version(request._request)
        super().initial(request, *args, **kwargs)
        self._acting = operator.begin(_actor(request))

    def body(self, *, required: bool = True) -> dict[str, Any]:
        """Return the JSON object of the request; see `parsers.read_object`."""
        found, self._body_bytes = read_object(self.request._request, required=required)
        return found

    def body_fits(self, limit: int) -> bool:
        """Whether each part of the body is certainly at most this many bytes of compact JSON."""
        return self._body_bytes * json.MOST_GROWTH <= limit

    @property
    def access(self) -> Access:
        """What the caller may do. Raises Unauthenticated."""
        return required_access(self.request)

    def make_known(self, *, queues: Iterable[object] = (), types: Iterable[object] = ()) -> None:
        """Count new names for the caller. Raises PermissionDenied for too many."""
        known_names.make_known(self.access.principal.id, queues=queues, types=types)

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]  # DRF would have its own Response
        discard_rest(self.request._request)
        response = error_responses.error_response(self.request, exc)
        if response.status_code == 405:
            response["Allow"] = ", ".join(self.allowed_methods)
        return response

    def finalize_response(  # type: ignore[override]  # as above
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Render an object that a handler returned, and add the headers of every response."""
        if isinstance(response, dict):
            response = json_response(response)
        headers.add_standard_headers(request._request, response)
        compression.compress(request._request, response)
        if request.method == "HEAD":
            headers.remove_body(response)
        return response  # type: ignore[no-any-return]  # a handler returns a dict or an HttpResponse


def _actor(request: Request) -> Actor | None:
    """Return the caller for the audit trail. Requests that only read need none."""
    if request.method in ("GET", "HEAD"):
        return None
    access = access_of(request)
    if access is None:
        return None
    kind = ActorKind.USER
    if isinstance(request.auth, Access):
        is_key = (access.identity or "").startswith(API_KEY)
        kind = ActorKind.API_KEY if is_key else ActorKind.OTHER
    return Actor(
        kind=kind,
        name=access.name,
        source_ip=str(request.META.get("REMOTE_ADDR", "")),
        correlation_id=headers.request_id(request._request),
    )


class PublicView(OJSView):
    """A resource that needs no credentials, for load balancers and for clients without a key."""

    permission_classes = ()

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return none: credentials are not checked."""
        return []

    def get_throttles(self) -> list[BaseThrottle]:
        """Return none: a load balancer must not take the server for one that is down."""
        return []


class UnknownPath(PublicView):
    """Any other path: 404 with the body of every error, for every method."""

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise Http404
