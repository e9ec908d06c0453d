"""What all routes share: reading, access, answering, and what becomes of an exception."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from django_ojs.http import compression, exceptions, headers
from django_ojs.http.access import Access, Scope, access_of
from django_ojs.http.authentication import authentication_classes
from django_ojs.http.negotiation import NoNegotiation
from django_ojs.http.parsers import OJSParser, read_object
from django_ojs.http.permissions import HasScope
from django_ojs.http.renderers import OJSRenderer, respond


class OJSView(APIView):
    """A resource. Handlers return the object of their answer, or what `answer` makes."""

    #: The scope each method needs.
    needs: ClassVar[Mapping[str, Scope]] = {}

    parser_classes = (OJSParser,)
    renderer_classes = (OJSRenderer,)
    content_negotiation_class = NoNegotiation
    # `openapi.yaml` describes these routes; a document that a project generates leaves them out.
    schema = None
    permission_classes: Sequence[type[BasePermission]] = (HasScope,)
    throttle_classes = ()
    # A version of the project's own API in a path or a header is no business of these routes.
    versioning_class = None
    http_method_names = ["get", "head", "post", "put", "delete"]

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return those of the settings, so that tests and sites can change them."""
        return [one() for one in authentication_classes()]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer a request, in the contract's shape whatever happens."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Exception as error:
            # Outside of what DRF guards: finding the authenticators, writing the answer.
            response = exceptions.answer(request, error)
            headers.stamp(request, response)
            return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse other versions, then who may not."""
        headers.check_version(request)
        super().initial(request, *args, **kwargs)

    def body(self, *, required: bool = True) -> dict[str, Any]:
        """Return the JSON object of the request; see `parsers.read_object`."""
        return read_object(self.request._request, required=required)

    @property
    def access(self) -> Access:
        """What the caller may do. Only for views whose permission asked for a caller."""
        access = access_of(self.request)
        if access is None:
            raise exceptions.nobody()
        return access

    def answer(
        self, data: dict[str, Any] | None, status: int = 200, headers: Mapping[str, str] = {}
    ) -> HttpResponse:
        """Return an answer with a status and headers of its own."""
        response = respond(data, status)
        for name, value in headers.items():
            response[name] = value
        return response

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]  # DRF would have its own Response
        """Turn an exception into an answer; none gets out."""
        response = exceptions.answer(self.request, exc)
        if response.status_code == 405:
            response["Allow"] = ", ".join(self.allowed_methods)
        return response

    def finalize_response(  # type: ignore[override]  # as above
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Render an object that a handler returned, and put on the headers of every answer."""
        if isinstance(response, dict):
            response = respond(response)
        headers.stamp(request, response)
        compression.compress(request, response)
        if request.method == "HEAD":
            headers.leave_out_body(response)
        return response  # type: ignore[no-any-return]  # a handler returns a dict or an HttpResponse


class PublicView(OJSView):
    """For everybody: load balancers and clients ask before they have a key."""

    permission_classes = ()

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Nobody needs to be known."""
        return []


class Unknown(PublicView):
    """Any other path: 404, in the shape of every error, whoever asks."""

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Answer every method alike."""
        raise Http404
