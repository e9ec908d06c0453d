"""Which credentials are accepted over HTTP, and the errors for all others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.test import APIClient

from django_ojs.conf import AUTHENTICATION
from django_ojs.http import authentication
from django_ojs.http.access import FULL_ACCESS, PERMISSIONS, Access
from django_ojs.http.views.base import OJSView
from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys
from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.scopes import Scope
from tests.admin.users import root, staff
from tests.model_factories import ApiKeyFactory, UserFactory

ALLOW_ANY = "django_ojs.http.authentication.AllowAny"
THIRD_PARTY = "tests.http.test_authentication.ByHeader"


class Probe(OJSView):
    """Says who asks; `put` was forgotten in `needs`."""

    needs = {"GET": Scope.READ, "POST": Scope.PRODUCER, "DELETE": Scope.ADMIN}

    def get(self, request: Any) -> dict[str, Any]:
        return self._who()

    def post(self, request: Any) -> dict[str, Any]:
        return self._who()

    def put(self, request: Any) -> dict[str, Any]:
        raise AssertionError("nobody gets here")

    def delete(self, request: Any) -> dict[str, Any]:
        return self._who()

    def _who(self) -> dict[str, Any]:
        queues = self.access.queues
        return {"name": self.access.name, "queues": None if queues is None else sorted(queues)}


class ByHeader(BaseAuthentication):
    """A third party's class: it knows users, and nothing of django_ojs."""

    def authenticate(self, request: Any) -> tuple[Any, Any] | None:
        name = request.META.get("HTTP_X_USER")
        if name is None:
            return None
        user = User.objects.filter(username=name).first()
        if user is None:
            raise AuthenticationFailed(f"there is no {name}")
        return user, "a token of theirs"


urlpatterns = [path("probe/<str:anything>", lambda r, anything: Probe.as_view()(r))]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.once]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    with override_settings(OJS={}):
        yield


def key(*scopes: str, **values: Any) -> tuple[ApiKey, str]:
    return ApiKeyFactory(name="k", scopes=scopes or ["read"], **values)


def ask(method: str = "get", text: str | None = None, **headers: str) -> HttpResponse:
    if text is not None:
        headers["Authorization"] = f"Bearer {text}"
    response: HttpResponse = getattr(Client(), method)("/probe/x", headers=headers)
    return response


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("method", ["get", "head", "post", "put", "delete"])
def test_without_credentials_every_response_is_a_401(method: str) -> None:
    response = ask(method)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    if method != "head":
        error = response.json()["error"]
        assert (error["code"], error["retryable"]) == ("UNAUTHENTICATED", False)


def test_a_key_is_let_in_by_its_scopes_and_is_kept_to_its_queues() -> None:
    made, text = key("producer", queues=["b", "a"])
    response = ask("post", text)
    assert response.json() == {"name": f"k ({made.prefix})", "queues": ["a", "b"]}
    response = ask("get", text)
    assert code(response) == (403, "PERMISSION_DENIED")
    assert response.json()["error"]["details"] == {"required_scope": "read"}
    assert code(ask("delete", text)) == (403, "PERMISSION_DENIED")
    assert "WWW-Authenticate" not in response


def test_an_admin_key_may_do_all_of_it() -> None:
    _, text = key("admin")
    assert [ask(m, text).status_code for m in ("get", "head", "post", "delete")] == [200] * 4


def test_a_method_that_the_view_forgot_to_protect_is_for_nobody() -> None:
    assert code(ask("put", key("admin")[1])) == (403, "PERMISSION_DENIED")


def test_a_method_that_the_view_does_not_know_is_405_for_who_is_let_in() -> None:
    assert ask("patch", key("read")[1]).status_code == 405


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", " Bearer  "])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    assert ask(Authorization=f"{scheme} {key()[1]}").status_code == 200


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Basic b2pzOm9qcw==", "Token {}", "{}", "Bearer eyJhbGciOiJ9.e30.x", ""],
)
def test_what_is_no_key_is_as_good_as_nothing(header: str) -> None:
    assert code(ask(Authorization=header.format(key()[1]))) == (401, "UNAUTHENTICATED")


def test_wrong_and_unknown_keys_get_the_same_response() -> None:
    made, _ = key()
    responses = []
    for text in ("ojs_0000000000_" + "a" * 43, f"ojs_{made.prefix}_" + "a" * 43, "ojs_\xff"):
        response = ask(text=text)
        assert code(response) == (401, "UNAUTHENTICATED")
        assert response["WWW-Authenticate"].startswith("Bearer")
        error = response.json()["error"]
        assert text not in str(error)
        del error["request_id"]
        responses.append(error)
    assert responses[0] == responses[1] == responses[2]


def test_a_key_that_was_valid_gets_a_response_that_says_so() -> None:
    _, old = key(expires=datetime(2020, 1, 1, tzinfo=UTC))
    gone, text = key()
    api_keys.revoke(gone.prefix)
    for presented in (old, text):
        response = ask(text=presented)
        assert code(response) == (401, "TOKEN_EXPIRED")
        assert response["WWW-Authenticate"].startswith("Bearer")


def test_a_wrong_key_is_not_forgiven_for_a_session() -> None:
    client = root()
    headers = {"Authorization": "Bearer ojs_0000000000_" + "a" * 43}
    assert client.get("/probe/x", headers=headers).status_code == 401
    assert client.get("/probe/x").status_code == 200


@pytest.mark.parametrize(
    "values", [{"is_staff": False, "is_superuser": True}, {"is_active": False}, None]
)
def test_sessions_of_others_than_active_staff_are_nobodys(values: dict[str, Any] | None) -> None:
    client = Client()
    if values is not None:
        client.force_login(UserFactory(**values))
    assert code(client.get("/probe/x")) == (401, "UNAUTHENTICATED")


class BareUser:
    """A user of a project's own model, which has neither Django's permissions nor `is_staff`."""

    is_active = is_authenticated = True

    def __str__(self) -> str:
        return "bare"


class Bare(BaseAuthentication):
    """A third party's class, which brings users of that model."""

    def authenticate(self, request: Any) -> tuple[Any, Any]:
        return BareUser(), None


def test_a_user_of_a_model_without_staff_is_nobody_and_without_permissions_may_do_nothing() -> None:
    request = RequestFactory().get("/probe/x")
    request.user = BareUser()  # type: ignore[assignment]  # no class of Django's
    assert Probe.as_view()(request).status_code == 401
    with override_settings(OJS={"HTTP_AUTHENTICATION": [f"{__name__}.Bare"]}):
        assert code(ask()) == (403, "PERMISSION_DENIED")


def test_a_session_has_the_scopes_of_the_users_permissions() -> None:
    client = staff(PERMISSIONS[Scope.OPERATOR])
    assert client.get("/probe/x").json() == {"name": "ann", "queues": None}
    assert client.post("/probe/x").status_code == 200
    assert code(client.delete("/probe/x")) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize("scope", list(Scope))
def test_every_scope_has_a_permission_that_migrations_make(scope: Scope) -> None:
    client = staff(PERMISSIONS[scope])
    expected = {"get": Scope.READ, "post": Scope.PRODUCER, "delete": Scope.ADMIN}
    access = Access(name="", scopes=frozenset({scope}))
    for method, needed in expected.items():
        status = 200 if access.allows(needed) else 403
        assert getattr(client, method)("/probe/x").status_code == status


def test_staff_without_a_permission_may_do_nothing_and_superusers_all() -> None:
    assert code(staff().get("/probe/x")) == (403, "PERMISSION_DENIED")
    assert root().delete("/probe/x").status_code == 200


def test_the_test_client_of_drf_can_force_a_user() -> None:
    client = APIClient()
    client.force_authenticate(UserFactory(username="root", is_superuser=True))
    assert client.post("/probe/x").json()["name"] == "root"
    client.force_authenticate()
    assert client.post("/probe/x").status_code == 401


def test_a_session_needs_the_csrf_token_to_write_and_a_key_does_not() -> None:
    client = staff(root=True, csrf=True)
    assert client.get("/probe/x").status_code == 200
    response = client.post("/probe/x", headers={"Origin": "https://evil.example"})
    assert code(response) == (403, "PERMISSION_DENIED")
    assert "evil" not in response.content.decode()
    request = RequestFactory().get("/")
    token = get_token(request)
    client.cookies["csrftoken"] = request.META["CSRF_COOKIE"]
    assert client.post("/probe/x", headers={"X-CSRFToken": token}).status_code == 200
    _, text = key("producer")
    stranger = Client(enforce_csrf_checks=True)
    headers = {"Authorization": f"Bearer {text}"}
    assert stranger.post("/probe/x", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/json",
    ],
)
def test_a_strangers_form_cannot_use_a_session(kind: str) -> None:
    client = staff(root=True, csrf=True)
    response = client.post("/probe/x", b"csrfmiddlewaretoken=a&x", content_type=kind)
    assert code(response) == (403, "PERMISSION_DENIED")


@override_settings(OJS={"HTTP_AUTHENTICATION": [ALLOW_ANY]})
def test_an_api_that_was_opened_lets_anybody_in() -> None:
    assert ask("delete").json() == {"name": "anybody", "queues": None}


@override_settings(OJS={"HTTP_AUTHENTICATION": []})
def test_without_any_class_nobody_gets_in() -> None:
    assert code(ask(text=key("admin")[1])) == (401, "UNAUTHENTICATED")


@override_settings(OJS={"HTTP_AUTHENTICATION": [AUTHENTICATION[0], THIRD_PARTY]})
def test_a_class_of_a_third_party_brings_users_with_their_permissions() -> None:
    UserFactory(permissions=[PERMISSIONS[Scope.READ]], is_staff=False)
    assert ask(**{"X-User": "ann"}).json()["name"] == "ann"
    assert code(ask("post", **{"X-User": "ann"})) == (403, "PERMISSION_DENIED")
    rejected = ask(**{"X-User": "bob"})
    assert code(rejected) == (401, "UNAUTHENTICATED")
    assert "bob" not in rejected.content.decode()
    assert rejected["WWW-Authenticate"].startswith("Bearer")
    assert ask(text=key()[1]).status_code == 200


@override_settings(OJS={"HTTP_AUTHENTICATION": [THIRD_PARTY]})
def test_keys_are_of_no_use_where_the_setting_leaves_them_out() -> None:
    assert code(ask(text=key("admin")[1])) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "path", ["not.there", "django_ojs.http.access.Access", "django_ojs.http.access.FULL_ACCESS"]
)
def test_a_path_that_names_no_class_is_named(path: str) -> None:
    with (
        override_settings(OJS={"HTTP_AUTHENTICATION": [path]}),
        pytest.raises(ImproperlyConfigured, match=path),
    ):
        authentication.authentication_classes()


def test_rejections_are_noted_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    made, text = key("producer")
    wrong = f"ojs_{made.prefix}_" + "q" * 43
    with caplog.at_level(logging.DEBUG):
        for presented in (wrong, "ojs_forged\nline", None):
            ask(text=presented)
        ask("delete", text, **{"X-Request-Id": "req_1"})
        ask("post", text)
    events = [vars(r) for r in caplog.records if hasattr(r, "event_type")]
    assert [e["event_type"] for e in events] == ["auth.failure"] * 3 + ["access.denied"]
    assert [e["principal"] for e in events] == ["unknown"] * 3 + [f"k ({made.prefix})"]
    assert [e["detail"].get("key_prefix") for e in events] == [made.prefix, None, None, None]
    last = events[-1]
    assert (last["outcome"], last["levelname"]) == ("failure", "WARNING")
    assert (last["source_ip"], last["correlation_id"]) == ("127.0.0.1", "req_1")
    assert last["detail"] == {
        "reason": "PERMISSION_DENIED",
        "endpoint": "DELETE probe/<str:anything>",
    }
    for secret in ("q" * 43, text.rpartition("_")[2], "forged"):
        assert secret not in caplog.text
        assert secret not in str(events)


@override_settings(OJS={"HTTP_AUTHENTICATION": [THIRD_PARTY]})
def test_a_name_with_a_line_break_does_not_make_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    UserFactory(username="ann\nforged")
    ask(**{"X-User": "ann\nforged"})
    (event,) = [record for record in caplog.records if hasattr(record, "event_type")]
    assert "\n" not in event.getMessage()
    assert "ann?forged" in event.getMessage()


def test_an_access_is_kept_to_its_queues() -> None:
    some = Access(name="k", scopes=frozenset({Scope.PRODUCER}), queues=frozenset({"a"}))
    some.check_queue("a")
    with pytest.raises(PermissionDenied) as caught:
        some.check_queue("secret")
    assert caught.value.details == {"field": "queue"}
    assert "secret" not in caught.value.message
    with pytest.raises(PermissionDenied):
        some.check_all_queues()
    FULL_ACCESS.check_queue("secret")
    FULL_ACCESS.check_all_queues()
