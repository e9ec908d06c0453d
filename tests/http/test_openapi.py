"""The OpenAPI document: valid, complete, and served as every answer is."""

from __future__ import annotations

from io import StringIO
from typing import Any

from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, path
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from openapi_spec_validator import OpenAPIV31SpecValidator

from django_ojs.http import urls
from django_ojs.http.schema.generator import Generator, document
from django_ojs.http.schema.routes import ROUTES, TAGS
from django_ojs.http.views.base import OJSView, Unknown

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def _served() -> dict[str, set[str]]:
    """Return the methods of each route, by name."""
    found = {}
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        view: Any = pattern.callback
        if view.cls is not Unknown:
            found[str(pattern.name)] = set(view.cls().allowed_methods) & set(METHODS)
    return found


def test_every_method_of_every_route_is_described_and_nothing_else_is() -> None:
    assert {name: set(methods) for name, methods in ROUTES.items()} == _served()


def test_every_route_is_in_the_document() -> None:
    operations = [
        operation for methods in document()["paths"].values() for operation in methods.values()
    ]

    assert len(operations) == sum(map(len, ROUTES.values()))
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert {tag for operation in operations for tag in operation["tags"]} == set(TAGS)


def test_the_document_is_valid_openapi_3_1() -> None:
    assert document()["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document()).validate()


def test_every_component_is_used() -> None:
    text = str(document())

    for kind in ("schemas", "headers", "parameters"):
        for name in document()["components"][kind]:
            assert f"#/components/{kind}/{name}'" in text, name


def test_the_scope_a_description_names_is_the_one_the_view_needs() -> None:
    for pattern in urls.urlpatterns:
        view: Any = pattern.callback
        for method, operation in ROUTES.get(str(pattern.name), {}).items():
            assert operation.scope == view.cls.needs.get(method), (pattern.name, method)


def test_a_route_without_a_description_is_a_warning() -> None:
    class Forgotten(OJSView):
        def get(self, request: Any) -> dict[str, Any]:
            return {}

    routes = [path("ojs/v1/forgotten", Forgotten.as_view(route="ojs-forgotten"))]

    found = Generator(patterns=routes).get_schema()

    assert found["paths"] == {}
    assert GENERATOR_STATS
    GENERATOR_STATS.reset()


def test_the_command_writes_it_without_a_warning() -> None:
    out = StringIO()

    call_command(
        "spectacular",
        generator_class="django_ojs.http.schema.generator.Generator",
        validate=True,
        fail_on_warn=True,
        stdout=out,
    )

    assert "openapi: 3.1.0" in out.getvalue()


def test_the_document_of_a_project_does_not_mention_these_routes() -> None:
    found = SchemaGenerator(urlconf="tests.urls").get_schema(public=True)  # type: ignore[no-untyped-call]  # it has no types

    assert found["paths"] == {}
    assert not GENERATOR_STATS


def test_it_is_served_to_everybody_under_the_media_type_of_every_answer(client: Client) -> None:
    response = client.get("/ojs/v1/openapi.json")

    assert response.status_code == 200
    assert response["Content-Type"] == "application/openjobspec+json"
    assert response["OJS-Version"] == "1.0"
    body = response.json()
    assert body["paths"].keys() == document()["paths"].keys()
    assert body["servers"] == [{"url": "/"}]


def test_below_a_prefix_it_names_the_prefix_as_its_server(client: Client) -> None:
    response = client.get("/ojs/v1/openapi.json", SCRIPT_NAME="/queue")

    assert response.json()["servers"] == [{"url": "/queue"}]
