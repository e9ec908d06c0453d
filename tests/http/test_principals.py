"""Every method of every route, asked by everybody; see `principals`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from django_ojs.extensions.workflows.models import Workflow
from django_ojs.operations.queues import create
from tests.cases import case
from tests.databases import KIND
from tests.factories import WorkerFactory, hourly, in_state, snapshot
from tests.factories import jobs as all_jobs
from tests.http.api import Api, ApiResponse, make_key
from tests.http.principals import ADMIN, DENIED, HIDDEN, MAY, NONE, OPEN, TABLE, Line
from tests.operations.cron import scenes as cron
from tests.operations.workflows import scenes as workflows

pytestmark = [pytest.mark.django_db, pytest.mark.once]

SECRET_WORD = "classified"


def served(patterns: Any = None) -> Iterator[tuple[str, str]]:
    """Walk through what the resolver knows of ours: (method, name of the route)."""
    for each in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(each, URLResolver):
            yield from served(each.url_patterns)
        elif isinstance(each, URLPattern) and (each.name or "").startswith("ojs-"):
            view: Any = each.callback.view_class  # type: ignore[attr-defined]  # Django's as_view
            for method in set(view.http_method_names) - {"head", "options"}:
                if hasattr(view, method):
                    yield method.upper(), str(each.name)


def test_every_method_of_every_route_has_one_line() -> None:
    lines = [(line.method, line.route) for line in TABLE]
    assert len(lines) == len(set(lines))
    assert sorted(lines) == sorted(served()), "see tests/http/principals.py"


@pytest.fixture
def other() -> str:
    """Make a dead letter in the queue "other", and what else a route may ask for."""
    job = in_state(
        "discarded", queue="other", type=f"{SECRET_WORD}.job", args=[SECRET_WORD], retry=hourly(1)
    )
    WorkerFactory(id="w-classified")
    template = {"type": f"{SECRET_WORD}.job", "args": [SECRET_WORD], "options": {"queue": "other"}}
    cron.register("other", template=template)
    workflow = workflows.create(workflows.chain(template, name=SECRET_WORD))
    # The paths of both kinds name it by its id, which is the job's.
    Workflow.primary.filter(pk=workflow.pk).update(id=job.pk)
    return str(job.pk)


@pytest.fixture(autouse=True)
def _closed(settings: Any) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}


def ask(api: Api, line: Line, job: str) -> ApiResponse:
    pattern = next(found for found in patterns() if found.name == line.route)
    kinds = {"name": "other", "key": "w-classified" if "worker" in line.route else job}
    path = reverse(line.route, kwargs={name: kinds[name] for name in pattern.pattern.converters})
    body = json.loads(json.dumps(line.body).replace("{job}", job))
    return api.ask(line.method, path + line.query.replace("{job}", job), body)


def patterns(found: Any = None) -> Iterator[URLPattern]:
    for each in get_resolver().url_patterns if found is None else found:
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns)
        else:
            yield each


#: Who may do what does not depend on the database, and what a route asks of the database does.
CALLERS = [*MAY] if KIND == "postgresql" else [ADMIN]


@pytest.mark.both
@pytest.mark.repeats
def test_only_a_caller_with_the_right_gets_a_success(other: str) -> None:
    keys = {who: None if who == "anonymous" else make_key(who) for who in CALLERS}
    for line, who in product(TABLE, CALLERS):
        with case(f"{line.method} {line.route} as {who}"):
            response = ask(Api(keys[who]), line, other)
            if line.least in MAY[who]:
                assert response.status not in (401, 403)
                assert response.status < 500
            elif who == "anonymous":
                response.error(401, "UNAUTHENTICATED")
            else:
                response.error(403, "PERMISSION_DENIED", required_scope=line.least)


@pytest.mark.repeats
def test_who_is_kept_to_another_queue_sees_and_changes_nothing_there(other: str) -> None:
    job = all_jobs().get(pk=other)
    before = snapshot(job.pk)
    count = all_jobs().count()
    api = Api(make_key("admin", queues=("mine",)))
    for line in TABLE:
        with case(f"{line.method} {line.route}"):
            response = ask(api, line, other)
            text = response.raw.content.decode().replace(other, "", 1)
            if line.elsewhere == HIDDEN:
                assert response.status == 200 or response.status == 404, response.body
                assert SECRET_WORD not in text.replace("w-classified", "")
                assert '"other"' not in text
            elif line.elsewhere == OPEN:
                response.ok()
            elif line.elsewhere == NONE:
                response.error(422, "unsupported")
            else:
                error = response.error(403, "PERMISSION_DENIED")
                assert ("all queues" in error["message"]) is (line.elsewhere != DENIED)
                assert SECRET_WORD not in text
            assert snapshot(job.pk) == before
            assert all_jobs().count() == count


def test_a_key_without_queues_is_for_all_of_them(other: str) -> None:
    create("mine")
    assert Api(make_key("admin")).get(f"jobs/{other}").ok()["job"]["args"] == [SECRET_WORD]
