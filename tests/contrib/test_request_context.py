"""Where a job came from: the request goes into `meta`, and the language back round the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from django.urls import path
from django.utils import translation

import django_ojs as ojs
from django_ojs.contrib.request_context import RequestContextMiddleware, restore_locale
from django_ojs.middleware import ExecutionChain
from django_ojs.models import Job
from tests.cases import together
from tests.model_factories import UserFactory

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_ojs.contrib.request_context.RequestContextMiddleware",
]


def plain(request: HttpRequest) -> HttpResponse:
    """Enqueue without a look at the user."""
    ojs.enqueue("test.context")
    return HttpResponse()


def looks(request: HttpRequest) -> HttpResponse:
    assert request.user.is_authenticated
    return plain(request)


def logs_in(request: HttpRequest) -> HttpResponse:
    assert not request.user.is_authenticated
    user = authenticate(request, username="ada", password="lovelace")
    assert user is not None
    login(request, user)
    return plain(request)


def logs_out(request: HttpRequest) -> HttpResponse:
    assert request.user.is_authenticated
    logout(request)
    return plain(request)


async def asynchronous(request: HttpRequest) -> HttpResponse:
    await ojs.aenqueue("test.context")
    return HttpResponse()


async def looks_asynchronously(request: HttpRequest) -> HttpResponse:
    assert (await request.auser()).is_authenticated
    return await asynchronous(request)


def breaks(request: HttpRequest) -> HttpResponse:
    raise ValueError("the view broke")


VIEWS: list[Callable[..., Any]] = [
    plain,
    looks,
    logs_in,
    logs_out,
    asynchronous,
    looks_asynchronously,
    breaks,
]
urlpatterns = [path(f"{view.__name__}/", view) for view in VIEWS]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.once]


@pytest.fixture(autouse=True)
def _with_the_middleware() -> Iterator[None]:
    ours = {"ENQUEUE_MIDDLEWARE": ["django_ojs.contrib.request_context.add_request_context"]}
    with override_settings(
        OJS=ours, MIDDLEWARE=MIDDLEWARE, LANGUAGES=[("en", "English"), ("de", "German")]
    ):
        yield


def meta(
    view: Callable[..., Any], user: User | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Ask a view and return the meta of the one job that it enqueued."""
    client = Client(headers=headers)
    if user is not None:
        client.force_login(user)
    assert client.get(f"/{view.__name__}/").status_code == 200
    return dict(Job.objects.get().meta)


def in_a_request(enqueue: Callable[[], object], request: HttpRequest | None = None) -> None:
    """Call this while a request is processed."""

    def response(request: HttpRequest) -> HttpResponse:
        enqueue()
        return HttpResponse()

    RequestContextMiddleware(response)(request or RequestFactory().get("/"))


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_a_request_without_headers_gets_an_id_and_the_default_language(
    view: Callable[..., Any],
) -> None:
    found = meta(view)
    assert found.pop("ojs.context.request_id").startswith("req_")
    assert found == {"ojs.context.locale": "en"}


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_the_headers_of_a_request_go_into_meta(view: Callable[..., Any]) -> None:
    headers = {"X-Request-ID": "abc-123", "traceparent": TRACE, "Accept-Language": "de"}
    assert meta(view, headers=headers) == {
        "ojs.context.request_id": "abc-123",
        "ojs.context.locale": "de",
        "traceparent": TRACE,
    }


def test_the_headers_of_an_asgi_request_go_into_meta_too() -> None:
    headers = {"X-Request-ID": "abc-123", "traceparent": TRACE, "Accept-Language": "de"}

    async def ask() -> int:
        return (await AsyncClient().get("/asynchronous/", headers=headers)).status_code

    assert async_to_sync(ask)() == 200
    assert Job.objects.get().meta == {
        "ojs.context.request_id": "abc-123",
        "ojs.context.locale": "de",
        "traceparent": TRACE,
    }


@pytest.mark.parametrize("view", [looks, looks_asynchronously])
def test_a_user_that_the_view_has_loaded_goes_into_meta(view: Callable[..., Any]) -> None:
    user = UserFactory(username="ada", password="lovelace")
    assert meta(view, user)["ojs.context.user_id"] == str(user.pk)


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_a_user_that_nobody_looked_at_costs_no_query(view: Callable[..., Any]) -> None:
    assert "ojs.context.user_id" not in meta(view, UserFactory(username="ada", password="lovelace"))


def test_the_user_is_the_one_of_the_moment() -> None:
    user = UserFactory(username="ada", password="lovelace")
    assert meta(logs_in)["ojs.context.user_id"] == str(user.pk)
    Job.objects.all().delete()
    assert "ojs.context.user_id" not in meta(logs_out, user)


def test_a_user_that_other_middleware_put_there_is_used() -> None:
    request = RequestFactory().get("/")
    for user in (AnonymousUser(), User(pk=4711)):
        request.user = user
        in_a_request(lambda: ojs.enqueue("test.context"), request)
    found = [job.meta.get("ojs.context.user_id") for job in Job.objects.order_by("id")]
    assert found == [None, "4711"]


@together(
    "trace",
    [
        "",
        "hunter2",
        TRACE.upper(),
        TRACE + "0",
        TRACE[:-1],
        TRACE.replace("00-", "ff-", 1),
        TRACE.replace("00-", "01-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        TRACE + "\n",
        TRACE.replace("-", "_"),
    ],
    undo=True,
)
def test_what_is_no_trace_context_is_left_out(trace: str) -> None:
    assert "traceparent" not in meta(plain, headers={"traceparent": trace})


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "é", "\x7f"])
def test_a_request_id_that_is_no_token_is_replaced(given: str) -> None:
    found = meta(plain, headers={"X-Request-ID": given})
    assert found["ojs.context.request_id"].startswith("req_")


def test_the_jobs_of_a_request_share_its_id_and_other_requests_have_others() -> None:
    def twice() -> None:
        ojs.enqueue("test.context")
        ojs.enqueue_batch([ojs.request("test.context")] * 2)

    in_a_request(twice)
    in_a_request(twice)
    found = [job.meta["ojs.context.request_id"] for job in Job.objects.order_by("id")]
    assert found[0] == found[1] == found[2] != found[3] == found[4] == found[5]


def test_what_the_caller_set_stays() -> None:
    mine = {"traceparent": "mine", "ojs.context.request_id": None, "order": 4711}
    request = RequestFactory(headers={"traceparent": TRACE, "X-Request-ID": "abc"}).get("/")
    in_a_request(lambda: ojs.enqueue("test.context", meta=mine), request)
    assert Job.objects.get().meta == {**mine, "ojs.context.locale": "en-us"}


def test_outside_of_a_request_nothing_is_added() -> None:
    ojs.enqueue("test.context", meta={"a": 1})
    with pytest.raises(ValueError, match="the view broke"):
        Client().get("/breaks/")
    meta_after = ojs.enqueue("test.context", meta={"a": 2})
    assert [job.meta for job in Job.objects.order_by("id")] == [{"a": 1}, {"a": 2}]
    assert meta_after is not None


def test_concurrent_requests_are_not_mixed_up() -> None:
    async def response(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        await ojs.aenqueue("test.context", [request.path])
        return HttpResponse()

    async def ask(name: str) -> None:
        request = AsyncRequestFactory().get(f"/{name}", headers={"X-Request-ID": name})
        await RequestContextMiddleware(response)(request)  # type: ignore[misc]  # asynchronous, as its `response`

    async def ask_all() -> None:
        await asyncio.gather(*(ask(f"r{n}") for n in range(5)))

    async_to_sync(ask_all)()
    for job in Job.objects.all():
        assert job.args == [f"/{job.meta['ojs.context.request_id']}"]
    assert Job.objects.count() == 5


def run(meta: dict[str, Any], *, is_async: bool) -> str:
    """Run a handler that returns its language, as the worker would."""

    async def speak() -> str:
        await asyncio.sleep(0)
        return translation.get_language()

    chain = ExecutionChain(
        "EXECUTION_MIDDLEWARE", ("django_ojs.contrib.request_context.restore_locale",)
    )
    context = SimpleNamespace(job=SimpleNamespace(meta=meta), is_async=is_async)

    async def awaited() -> str:
        result: str = await chain.run(context, lambda _: speak())
        return result

    if is_async:
        return async_to_sync(awaited)()
    result: str = chain.run(context, lambda _: translation.get_language())
    return result


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_speaks_the_language_of_the_request(is_async: bool) -> None:
    with translation.override("en"):
        assert run({"ojs.context.locale": "de"}, is_async=is_async) == "de"
        assert translation.get_language() == "en"


@together("is_async", [False, True], undo=True)
@together("locale", [None, 4711, "", "xx-nonsense", "../../etc", ["de"]], undo=True)
def test_a_language_that_is_none_changes_nothing(locale: Any, is_async: bool) -> None:
    assert run({"ojs.context.locale": locale}, is_async=is_async) == "en-us"
    assert run({}, is_async=is_async) == "en-us"


def test_the_language_is_put_back_after_a_handler_that_failed() -> None:
    context = SimpleNamespace(
        job=SimpleNamespace(meta={"ojs.context.locale": "de"}), is_async=False
    )
    with translation.override("en"):
        with pytest.raises(ZeroDivisionError):
            restore_locale(context, lambda: 1 // 0)
        assert translation.get_language() == "en"
