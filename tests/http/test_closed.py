"""Every route is closed, whoever adds it: this reads the routes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, reverse

from django_ojs.http import urls
from django_ojs.spec.scopes import Scope
from tests.cases import together

#: What may be asked without credentials. Whoever adds to it has a reason.
PUBLIC = {"ojs-manifest", "ojs-health", "ojs-ready", "ojs-openapi"}
PUBLIC |= {"ojs-unknown", "ojs-unsupported"}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
VALUES: dict[str, Any] = {"int": 1, "uuid": UUID(int=1)}


def routes(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from routes(each.url_patterns, prefix + str(each.pattern))
        elif each.name not in PUBLIC:
            yield prefix + str(each.pattern), each


ROUTES = list(routes(urls.urlpatterns))
each_route = together(("path", "route"), ROUTES, ids=[route.name or path for path, route in ROUTES])


def address(route: URLPattern) -> str:
    names = {
        name: VALUES.get(type(converter).__name__.removesuffix("Converter").lower(), "x")
        for name, converter in route.pattern.converters.items()
    }
    return reverse(str(route.name), kwargs=names)


def needs(route: URLPattern) -> dict[str, Scope]:
    return dict(route.callback.view_class.needs)  # type: ignore[attr-defined]  # Django's as_view


def test_there_are_routes_to_read() -> None:
    assert {"ojs-jobs", "ojs-fetch"} <= {route.name for _, route in ROUTES}


@pytest.mark.once
@pytest.mark.django_db
@each_route
@override_settings(OJS={})
def test_a_stranger_gets_401_from_every_method(path: str, route: URLPattern) -> None:
    for method in METHODS:
        response: Any = Client().generic(method, address(route), b"{", content_type="text/plain")
        assert response.status_code == 401, method
        assert response["WWW-Authenticate"].startswith("Bearer")


@each_route
def test_every_method_that_is_served_needs_a_scope(path: str, route: URLPattern) -> None:
    view: Any = route.callback.view_class  # type: ignore[attr-defined]  # as above
    assert not view.is_public
    served = {m.upper() for m in view.http_method_names if hasattr(view, m)}
    assert set(needs(route)) == served - {"HEAD", "OPTIONS"}
    assert all(isinstance(scope, Scope) for scope in needs(route).values())


@each_route
def test_nothing_is_changed_with_the_scope_to_read(path: str, route: URLPattern) -> None:
    changing = {method: scope for method, scope in needs(route).items() if method != "GET"}
    assert Scope.READ not in changing.values()


@each_route
def test_the_control_plane_is_for_operators_and_admins(path: str, route: URLPattern) -> None:
    if "v1/admin/" in path:
        assert set(needs(route).values()) <= {Scope.OPERATOR, Scope.ADMIN}
