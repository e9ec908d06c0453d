"""What an extension brings to the doors: HTTP, the admin and the command line."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError, transaction
from django.db.models import Model
from django.test import Client, RequestFactory, override_settings
from django.urls import clear_url_caches, get_urlconf
from prometheus_client.core import GaugeMetricFamily

from django_ojs import conf
from django_ojs.admin import navigation
from django_ojs.admin.sites import register
from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import Options, Subcommand
from django_ojs.extension import Extension, Hooks
from django_ojs.extensions.cron.extension import CronExtension
from django_ojs.hooks import registry
from django_ojs.http import metrics, urls
from django_ojs.http.views.openapi import DOCUMENT
from django_ojs.models import Job, Overview, Queue
from django_ojs.not_installed import PATHS
from django_ojs.operations import queues
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import list_jobs
from django_ojs.operations.jobs.search_query import parse
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import active, push
from tests.http.api import Api, make_key
from tests.test_extension import Other, installed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


def _greet(console: Console, options: Options) -> int:
    console.line(f"Hello, {options['name']}.")
    return 0


class ColourAdmin:
    """The page of an extension, a mixin of ModelAdmin."""

    place = 15


class Greeting(Other):
    """An extension that greets on each door."""

    def subcommands(self) -> Sequence[Any]:
        return (
            Subcommand(
                name="greet",
                help="greet somebody",
                description="Greet somebody.",
                examples="  manage.py ojs greet Ada",
                add_arguments=lambda parser: parser.add_argument("name") and None,
                run=_greet,
            ),
        )


def test_an_extension_brings_subcommands_while_it_is_installed() -> None:
    assert "invalid choice: 'greet'" in ojs("greet", "Ada").err
    with installed(Greeting(Hooks())):
        assert ojs("greet", "Ada").out == "Hello, Ada.\n"


def test_without_cron_there_is_no_cron_subcommand() -> None:
    cron = next(each for each in registry.extensions() if isinstance(each, CronExtension))
    registry.remove(cron)
    try:
        assert "invalid choice: 'cron'" in ojs("cron", "list").err
    finally:
        registry.register(cron)
    assert ojs("cron", "list").code == 0


@pytest.fixture
def without() -> Iterator[Callable[[str], None]]:
    """Return a function that removes an extension of the package; the URLs are made anew."""
    removed: list[Extension] = []

    def remove(name: str) -> None:
        removed.append(next(each for each in registry.extensions() if each.name == name))
        registry.remove(removed[-1])
        make_urls_anew()

    yield remove
    registry.register(*removed)
    make_urls_anew()


def make_urls_anew() -> None:
    importlib.reload(urls)
    importlib.reload(importlib.import_module(str(get_urlconf() or settings.ROOT_URLCONF)))
    clear_url_caches()


@pytest.mark.parametrize(
    ("extension", "path", "app"),
    [
        ("cron", "cron", "cron"),
        ("cron", "cron/nightly", "cron"),
        ("workflows", "workflows/019539a4-b68c-7def-8000-1a2b3c4d5e6f/progress", "workflows"),
        ("limits by key", "rate-limits", "limits"),
        ("limits of queues", "admin/queues/shared/rate-limit", "limits"),
        ("webhooks", "webhooks/subscriptions/sub_1/rotate-secret", "webhooks"),
        ("webhooks", "webhooks/deliveries", "webhooks"),
        ("steps", "jobs/019539a4-b68c-7def-8000-1a2b3c4d5e6f/steps/suspend", "steps"),
        ("steps", "signals", "steps"),
        ("checkpoints", "jobs/019539a4-b68c-7def-8000-1a2b3c4d5e6f/checkpoint", "checkpoints"),
    ],
)
def test_a_path_of_an_extension_that_is_not_installed_says_the_line_to_add(
    without: Callable[[str], None], extension: str, path: str, app: str
) -> None:
    with override_settings(OJS={}):
        key = make_key("admin")
        assert Client().post(f"/ojs/v1/{path}").status_code == 401
        assert Api(key).get(path).status != 422
        without(extension)
        assert Client().post(f"/ojs/v1/{path}").status_code == 401
        error = Api(key).post(path, {}).error(422, "unsupported", feature=extension)
    assert f'"django_ojs.extensions.{app}" to INSTALLED_APPS' in error["hint"]


def test_the_steps_of_a_workflow_are_not_searched_for_without_workflows(
    without: Callable[[str], None],
) -> None:
    push()
    which = f"workflow:{uuid4()}"
    assert not parse(which).errors
    without("workflows")
    (error,) = parse(which).errors
    assert 'Add "django_ojs.extensions.workflows" to INSTALLED_APPS' in error
    # As a bulk operation has it that began before.
    of_workflow = JobFilter(workflow_id=uuid4())
    assert not list_jobs(of_workflow).rows
    assert not of_workflow.narrow(Job.primary.all()).exists()


def test_a_report_with_a_checkpoint_is_rejected_where_nothing_keeps_it(
    without: Callable[[str], None],
) -> None:
    job = active()
    body = {"progress": 0.5, "checkpoint": {"page": 4}}
    with override_settings(OJS={}):
        api = Api(make_key("admin"))
        without("checkpoints")
        api.put(f"jobs/{job.id}/progress", body).error(422, "unsupported", feature="checkpoints")
    assert Job.objects.get().progress is None


@pytest.mark.parametrize(
    ("extension", "app", "fields"),
    [
        ("tenants", "tenants", {"tenant_fairness": {"enabled": True}}),
        ("limits of queues", "limits", {"rate_limit": {"max_per_second": 7}}),
    ],
)
def test_a_field_of_a_queue_that_only_an_extension_knows_says_the_line_to_add(
    without: Callable[[str], None], extension: str, app: str, fields: dict[str, Any]
) -> None:
    with override_settings(OJS={}):
        api = Api(make_key("admin"))
        api.put("admin/queues/shared/config", fields).ok()
        without(extension)
        error = api.put("admin/queues/shared/config", fields).error(422, "unsupported")
        assert f'"django_ojs.extensions.{app}" to INSTALLED_APPS' in error["message"]
        # What is stored can be taken away, and changes nothing.
        push(queue="shared", meta={"tenant_id": "acme"})
        assert Job.objects.get().marks == 0
        api.put("admin/queues/shared/config", dict.fromkeys(fields)).ok()
    assert Queue.objects.get(pk="shared").config == {}
    with (
        override_settings(OJS={"QUEUES": {"shared": fields}}),
        pytest.raises(ImproperlyConfigured, match=rf"django_ojs\.extensions\.{app}"),
    ):
        conf.settings()


def test_the_form_of_a_queue_has_what_is_installed(without: Callable[[str], None]) -> None:
    stored = {"rate_limit": {"rate": {"limit": 3, "period": "PT1H"}}}
    queues.configure("shared", stored)
    url = "/admin/django_ojs/queue/action/configure/"
    client = root()
    assert "Limits of runs" in client.get(url, {"key": "shared"}).content.decode()
    without("limits of queues")
    page = client.get(url, {"key": "shared"})
    assert "Limits of runs" not in page.content.decode()
    assert "rate" not in page.context["form"].fields
    client.post(url, {"key": "shared", "confirmed": "1", "strategy": "", "max_depth": "5"})
    # What is stored stays.
    bounds = {"backpressure": {"max_depth": 5}}
    assert Queue.objects.get(pk="shared").config == stored | bounds


def test_the_manifest_and_the_openapi_document_have_what_is_installed(
    without: Callable[[str], None],
) -> None:
    def manifest() -> Any:
        return Client().get("/ojs/manifest").json()

    def paths() -> set[str]:
        DOCUMENT.reset()
        found = Client().get("/ojs/v1/openapi.json").json()["paths"]
        return {path.removeprefix("/ojs/v1/").partition("/")[0] for path in found}

    before = manifest()
    assert before["conformance_level"] == 4
    assert {"workflows", "rate-limits"} <= paths()
    without("limits by key")
    assert manifest()["conformance_level"] == 3
    assert "rate-limiting" not in str(manifest()["extensions"])
    without("workflows")
    assert manifest()["conformance_level"] == 2
    assert manifest()["capabilities"] == {
        **before["capabilities"],
        "workflows": False,
        "rate_limiting": False,
    }
    assert not {"workflows", "rate-limits"} & paths()
    DOCUMENT.reset()


def test_each_route_of_an_extension_that_may_be_left_out_has_an_answer() -> None:
    for extension in registry.extensions():
        app = type(extension).__module__.removesuffix(".extension")
        # One that is always there has none, and our own are the ones that the server answers for.
        if app.startswith("django_ojs.") and apps.is_installed(app) and extension.routes():
            assert extension.name in PATHS
            answer = re.compile(rf"ojs/v1/(?:{PATHS[extension.name]})")
            for route in extension.routes():
                assert answer.fullmatch(re.sub("<[^>]+>", "x", str(route.pattern)))


def test_an_extension_brings_pages_of_the_admin() -> None:
    class Colours(Other):
        def pages(self) -> Mapping[type[Model], str]:
            return {Group: f"{__name__}.ColourAdmin"}

    site = AdminSite()
    request = RequestFactory().get("/")
    request.user = User(is_active=True, is_superuser=True)
    with installed(Colours(Hooks())):
        register(site)
    shown = [model for model, _ in navigation.viewable(site, request)]
    assert shown[:4] == [Overview, Queue, Group, Job]


def test_all_pages_can_be_made() -> None:
    site = AdminSite()
    register(site)
    assert site.check(apps.get_app_configs()) == []
    for model in site._registry:
        assert site.get_model_admin(model).get_urls()


def test_a_page_that_is_not_there_is_an_error_of_the_checks() -> None:
    class Colours(Other):
        def pages(self) -> Mapping[type[Model], str]:
            return {Group: f"{__name__}.NoSuchAdmin"}

    site = AdminSite()
    with installed(Colours(Hooks())):
        register(site)
    with pytest.raises(ImportError, match="NoSuchAdmin"):
        site.check(apps.get_app_configs())


def test_an_extension_brings_parts_of_the_page_of_a_job_and_pages_beside_it(
    without: Callable[[str], None],
) -> None:
    job = push(type="test.job")
    user = root()

    def page() -> str:
        return user.get(f"/admin/django_ojs/job/{job.id}/change/").content.decode()

    assert "as recorded" in page()
    assert user.get("/admin/django_ojs/job/type/?type=test.job").status_code == 200
    without("events")
    assert "as recorded" not in page()


def test_an_extension_brings_metrics_and_one_that_fails_leaves_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Counting(Other):
        def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
            yield GaugeMetricFamily("colours", "Colours of jobs.", value=7)

    class Failing(Other):
        def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
            raise ValueError("no colours")

    with installed(Counting(Hooks()), Failing(Hooks(), name="failing", number=41)):
        shown = metrics.render(None).decode()
    assert "colours 7.0" in shown
    assert "ojs_queue_depth" in shown
    assert "The extension failing of django_ojs failed to bring its metrics." in caplog.text


def test_an_extension_hears_of_requests_and_adds_to_their_responses() -> None:
    heard: list[Any] = []
    hooks = Hooks(
        request_note=lambda request, types: heard.append(list(types)),
        push_headers=lambda queues: {"X-Queues": ",".join(queues)},
        error_headers=lambda error: {"X-Error": error.code},
        request_served=lambda: heard.append("served"),
        request_ended=lambda job: heard.append(job.state),
    )
    with override_settings(OJS={}), installed(Other(hooks)):
        api = Api(make_key("admin"))
        stored = api.post("jobs", {"type": "test.job", "args": [], "options": {"queue": "mine"}})
        assert stored.headers["X-Queues"] == "mine"
        assert heard == [["test.job"], "served"]
        wrong = api.post("jobs", {"type": "", "args": []})
        assert wrong.headers["X-Error"] == wrong["error"]["code"]
        heard.clear()
        job = active()
        api.post("workers/ack", {"job_id": str(job.id), "result": None}).ok()
        assert heard == ["completed", "served"]


@pytest.mark.django_db(transaction=True)
def test_a_stored_job_is_told_although_its_headers_cannot_be_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def push_headers(queues: Collection[str]) -> Mapping[str, str]:
        raise OperationalError("no reply")

    with override_settings(OJS={}), installed(Other(Hooks(push_headers=push_headers))):
        api = Api(make_key("admin"), raising=False)
        stored = api.post("jobs", {"type": "test.job", "args": []})
        assert stored.status == 201
        assert Job.primary.filter(pk=stored["job"]["id"]).exists()
        assert "has no headers for a response" in caplog.text
        # The rollback takes the job back, so the client has to know.
        with transaction.atomic():
            assert api.post("jobs", {"type": "test.job", "args": []}).status == 503
            transaction.set_rollback(True)


def test_a_page_of_the_project_stays() -> None:
    site = AdminSite()
    site.register(Job, ModelAdmin)
    register(site)
    assert type(site.get_model_admin(Job)) is ModelAdmin


def test_an_extension_is_told_that_workers_start_and_may_end_the_command() -> None:
    def refuse() -> None:
        raise CommandError("not today")

    with (
        installed(Other(Hooks(workers_start=refuse))),
        pytest.raises(CommandError, match="not today"),
    ):
        call_command("ojs_worker", "--once")
