"""The document, made by drf-spectacular: `manage.py spectacular --generator-class
django_ojs.http.schema.generator.Generator`, and `GET /ojs/v1/openapi.json`.
"""

from functools import lru_cache
from typing import Any, Final

from drf_spectacular.drainage import reset_generator_stats, warn
from drf_spectacular.generators import EndpointEnumerator, SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry
from rest_framework.views import APIView
from uritemplate import variables

from django_ojs.http.headers import VERSION
from django_ojs.http.schema.components import COMPONENTS
from django_ojs.http.schema.routes import ROUTES, TAGS
from django_ojs.http.views.base import OJSView

OPENAPI: Final = "3.1.0"
URLCONF: Final = "django_ojs.http.urls"
_INFO: Final = {
    "title": "Open Job Spec",
    "version": VERSION,
    "description": (
        "Background jobs over HTTP. Answers are `application/openjobspec+json`, whatever is "
        "accepted; errors have one shape. A field that is null is one that is left out, and fields "
        "that are not named here are stored with a job and given back."
    ),
}
_SECURITY: Final[list[dict[str, list[str]]]] = [{"key": []}, {"session": [], "csrf": []}]


class Described(AutoSchema):
    """Answers with the description that stands beside the routes."""

    def get_operation(
        self,
        path: str,
        path_regex: str,
        path_prefix: str,
        method: str,
        registry: ComponentRegistry,
    ) -> dict[str, Any] | None:
        """Return the operation of a method, or None, with a warning, for one not described."""
        route: str = getattr(self.view, "route", "")
        known = ROUTES.get(route, {}).get(method.upper())
        if known is None:
            warn(f"{method} of the route {route!r} has no description")
            return None
        return known.render(sorted(variables(path)))


class _Endpoints(EndpointEnumerator):
    def should_include_endpoint(self, path: str, callback: Any) -> bool:
        """Take our routes, and leave out the catch-all, which has no name and answers 404."""
        view = getattr(callback, "cls", None)
        return isinstance(view, type) and issubclass(view, OJSView) and _name(callback) != ""


class Generator(SchemaGenerator):
    """Describes the routes of this package alone, whatever else a project serves."""

    endpoint_inspector_cls = _Endpoints

    def create_view(self, callback: Any, method: str, request: Any = None) -> APIView:
        """Make the view, with our descriptions."""
        view: APIView = super().create_view(callback, method, request)  # type: ignore[no-untyped-call]  # spectacular's generator has no types
        # By hand what DRF's descriptor does: the class has none, so other documents pass it by.
        described = Described()
        described.view = view
        view.schema = described
        return view

    def get_schema(self, request: Any = None, public: bool = True) -> dict[str, Any]:
        """Return the document. Every route is in it, whoever asks: it says how to ask, not what
        there is. A project's own SPECTACULAR_SETTINGS say nothing about it.
        """
        reset_generator_stats()
        return {
            "openapi": OPENAPI,
            "info": dict(_INFO),
            "servers": [{"url": "/"}],
            "security": _SECURITY,
            "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
            "paths": self.parse(None, True),  # type: ignore[no-untyped-call]  # as above
            "components": COMPONENTS,
        }


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Return the document of the routes below the place where a project includes them."""
    return Generator(urlconf=URLCONF).get_schema()  # type: ignore[no-untyped-call]  # as above


def _name(callback: Any) -> str:
    return str(callback.initkwargs.get("route", ""))
