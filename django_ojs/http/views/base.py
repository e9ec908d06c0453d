"""The base classes of the views: authentication, scopes, bodies and responses."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NoReturn

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.views import APIView

from django_ojs import hooks
from django_ojs.extension import Actor
from django_ojs.http import compression, error_responses, headers, throttling
from django_ojs.http.access import API_KEY, Access, required_access
from django_ojs.http.authentication import authenticate
from django_ojs.http.parsers import discard_rest, read_object
from django_ojs.http.responses import json_response
from django_ojs.models import ActorKind
from django_ojs.operations.access import known_names, operator
from django_ojs.spec import json
from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.scopes import Scope
from django_ojs.storage import database


class OJSView(APIView):
    """A resource. Handlers return the object of the response, or an HttpResponse.

    A handler gets Django's request. The settings of the project's own API (DRF's permissions,
    throttles, versions, parsers and renderers) do not apply to these routes: `dispatch` does what
    they need and no more, because DRF's takes longer than some operations.
    """

    #: The scope that each method needs. A method without one is denied to every caller.
    needs: ClassVar[Mapping[str, Scope]] = {}
    #: Whether callers need no credentials, and are not limited by the setting HTTP_RATE_LIMIT.
    is_public: ClassVar[bool] = False

    request: HttpRequest  # type: ignore[assignment]  # DRF would wrap it
    _body_bytes = 0

    # `openapi.yaml` describes these routes, so a document that a project generates leaves them out.
    schema = None
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Return a response that conforms to the specification for every exception as well."""
        try:
            with database.hardly_waiting():
                response = self._respond(request, *args, **kwargs)
                headers.add_standard_headers(request, response)
                compression.compress(request, response)
                if request.method == "HEAD":
                    headers.remove_body(response)
        except Exception as error:
            # Adding the headers may raise, and so may `hardly_waiting`.
            response = error_responses.error_response(request, error)
            headers.add_standard_headers(request, response)
        if request.method not in ("GET", "HEAD") and response.status_code < 400:
            hooks.call_served(hooks.registry.request_served)
        return response

    def _respond(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        acting = None
        try:
            headers.check_version(request)
            if not self.is_public:
                acting = operator.begin(self._admit(request))
            found: dict[str, Any] | HttpResponseBase
            found = self._handler_of(request)(request, *args, **kwargs)
            return json_response(found) if isinstance(found, dict) else found
        except Exception as error:
            discard_rest(request)
            response = error_responses.error_response(request, error)
            if response.status_code == 405:
                response["Allow"] = ", ".join(self.allowed_methods)
            return response
        finally:
            if acting is not None:
                operator.end(acting)

    def _admit(self, request: HttpRequest) -> Actor | None:
        """Check the credentials, the scope and the rate of the caller, and return the operator.

        Raises what an authentication class raises, and Unauthenticated, PermissionDenied,
        Throttled.
        """
        authenticate(request)
        throttle = throttling.of_caller(request)
        access = required_access(request)
        method = request.method or ""
        # Django serves HEAD with the handler of GET.
        scope = self.needs.get("GET" if method == "HEAD" else method)
        if scope is not None:
            access.check(scope)
        elif method != "OPTIONS" and method in self.allowed_methods:
            raise PermissionDenied("No scope allows this method here.")
        if throttle is not None:
            throttle.count()
        # Requests that only read are not in the audit trail, so they need no operator.
        return None if method in ("GET", "HEAD") else _actor(request, access)

    def _handler_of(self, request: HttpRequest) -> Callable[..., Any]:
        name = (request.method or "").lower()
        found = getattr(self, name, None) if name in self.http_method_names else None
        return found or self.http_method_not_allowed

    def body(self, *, required: bool = True) -> dict[str, Any]:
        """Return the JSON object of the request. Raises what `parsers.read_object` raises."""
        found, self._body_bytes = read_object(self.request, required=required)
        return found

    def body_fits(self, limit: int) -> bool:
        """Whether each part of the body is certainly at most this many bytes of compact JSON."""
        return self._body_bytes * json.MOST_GROWTH <= limit

    @property
    def access(self) -> Access:
        """What the caller may do. Raises Unauthenticated."""
        return required_access(self.request)

    def make_known(self, *, queues: Iterable[object] = (), types: Iterable[object] = ()) -> None:
        """Store new names as the caller's. Raises PermissionDenied for too many."""
        known_names.make_known(self.access.principal.id, queues=queues, types=types)


def _actor(request: HttpRequest, access: Access) -> Actor:
    """Return the caller, for the audit trail."""
    kind = ActorKind.USER
    if isinstance(request.auth, Access):  # type: ignore[attr-defined]  # set by `authenticate`
        is_key = (access.identity or "").startswith(API_KEY)
        kind = ActorKind.API_KEY if is_key else ActorKind.OTHER
    return Actor(
        kind=kind,
        name=access.name,
        source_ip=str(request.META.get("REMOTE_ADDR", "")),
        correlation_id=headers.request_id(request),
    )


class PublicView(OJSView):
    """A resource that needs no credentials, for load balancers and for clients without a key.

    Its requests are not limited: a load balancer that gets a 429 would count the server as down.
    """

    is_public = True


class UnknownPath(PublicView):
    """Any other path: 404 for every method, with the same body as other errors."""

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise Http404
