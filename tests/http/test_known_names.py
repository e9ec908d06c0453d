"""How many queues and job types a caller may make known (HTTP_MAX_NAMES)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Job, KnownName, Queue
from django_ojs.operations import queues
from django_ojs.operations.access import api_keys, known_names
from django_ojs.spec.errors import PermissionDenied
from django_ojs.storage import in_memory_state
from tests.cases import together
from tests.factories import HOUR, hourly, in_state, push
from tests.http.api import Api, make_key
from tests.model_factories import ApiKeyFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _three(settings: Any) -> None:
    authentication = ["django_ojs.http.authentication.ApiKeyAuthentication"]
    settings.OJS = {"HTTP_AUTHENTICATION": authentication, "HTTP_MAX_NAMES": 3}


def producer(*scopes: str) -> Api:
    return Api(make_key(*(scopes or ("producer",))))


def rejected(response: Any, field: str = "queue") -> None:
    error = response.error(403, "PERMISSION_DENIED", field=field, limit=3)
    assert "HTTP_MAX_NAMES" in error["hint"]


@pytest.mark.both
@pytest.mark.parametrize("field", ["queue", "type"])
def test_a_producer_makes_up_so_many_queues_and_types_and_no_more(field: str) -> None:
    api = producer()
    known = {"type": "test.job", "queue": "q"}
    push(**known)
    for number in range(3):
        api.push(**known | {field: f"made.up{number}"})
    rejected(api.post("jobs", {"args": [], **known, field: "one.more"}), field)
    api.push(**known | {field: "made.up0"})
    assert Job.objects.count() == 5


def test_a_caller_whose_name_is_too_long_for_an_index_is_limited_as_others_are() -> None:
    long, other = "name " + "é" * 9_000, "name " + "é" * 8_999
    known_names.make_known(long, queues=["one", "two", "three"])
    for principal in (other, long[:255]):
        known_names.make_known(principal, queues=[f"of-{len(principal)}"])
    with pytest.raises(PermissionDenied):
        known_names.make_known(long, queues=["four"])
    assert KnownName.primary.filter(name="three").get().principal.startswith("sha256 ")


def test_a_batch_counts_all_its_names_and_stores_none_if_one_is_too_many() -> None:
    api = producer()
    batch = [{"type": "test.job", "args": [], "queue": f"made-up-{n}"} for n in range(4)]
    rejected(api.post("jobs/batch", {"jobs": batch}))
    assert not Job.objects.exists()
    api.post("jobs/batch", {"jobs": batch[:3]}).ok(201)


def test_a_queue_that_exists_is_accepted_from_a_caller_over_the_limit(settings: Any) -> None:
    known_names.make_known("a", queues=["one", "two", "three"])
    settings.OJS = {"HTTP_MAX_NAMES": 1}
    push(queue="in-use")
    known_names.make_known("a", queues=["in-use"])
    with pytest.raises(PermissionDenied):
        known_names.make_known("a", queues=["four"])


def test_queues_that_exist_count_for_no_key() -> None:
    for number in range(3):
        push(queue=f"jobs-{number}")
        queues.create(f"row-{number}")
    api = producer()
    for number in range(3):
        api.push(queue=f"jobs-{number}")
        api.push(queue=f"row-{number}")
        api.push(queue=f"made-up-{number}")
    producer().push(queue="made-up-0")
    rejected(api.post("jobs", {"type": "test.job", "args": [], "queue": "one-more"}))


def test_another_key_has_names_of_its_own_and_a_replacement_has_not() -> None:
    key, text = ApiKeyFactory(scopes=["producer"])
    for number in range(3):
        Api(text).push(queue=f"made-up-{number}")
    body = {"type": "test.job", "args": [], "queue": "one-more"}
    rejected(Api(api_keys.replace(key.prefix)[1]).post("jobs", body))
    producer().post("jobs", body).ok(201)


@together(
    ("method", "path", "body"),
    [
        ("POST", "queues", {"name": "one-more"}),
        ("PUT", "queues/one-more/config", {"max_envelope_bytes": 3}),
        ("POST", "queues/one-more/pause", None),
        ("POST", "queues/one-more/resume", None),
        ("DELETE", "queues/made-up-0?strategy=move&target_queue=one-more", None),
        ("PUT", "admin/queues/one-more/config", {"max_envelope_bytes": 3}),
        ("POST", "admin/queues/one-more/pause", None),
        ("POST", "admin/queues/one-more/resume", None),
        ("POST", "dead-letter/{dead}/retry", {"override": {"queue": "one-more"}}),
        ("POST", "admin/dead-letter/{dead}/retry", {"override": {"queue": "one-more"}}),
    ],
    undo=True,
)
def test_every_route_that_creates_a_queue_is_limited(method: str, path: str, body: Any) -> None:
    dead = in_state("discarded", queue="made-up-0", retry=hourly(1))
    api = producer("admin")
    for number in range(1, 4):
        api.push(queue=f"made-up-{number}")
    rejected(api.ask(method, path.format(dead=dead.pk), body))
    assert not Queue.objects.filter(name="one-more").exists()


def test_a_name_that_a_process_knows_costs_no_query() -> None:
    api = producer()
    api.push(queue="q")
    with CaptureQueriesContext(connection) as captured:
        api.push(queue="q")
    assert not [each for each in captured if "ojs_known_name" in each["sql"]]
    in_memory_state.reset()
    with CaptureQueriesContext(connection) as captured:
        api.push(queue="q")
    assert len([each for each in captured if "ojs_known_name" in each["sql"]]) == 2


@pytest.mark.both
def test_names_count_as_long_as_figures_are_kept(settings: Any) -> None:
    settings.OJS = settings.OJS | {"KEEP_ROLLUPS": HOUR}
    api = producer()
    for number in range(3):
        api.push(queue=f"made-up-{number}")
    assert known_names.prune() == 0
    KnownName.objects.update(created_at=F("created_at") - HOUR)
    assert known_names.prune() == 4
    api.push(queue="one-more")


@pytest.mark.once
@together("name", [["a"], {"a": 1}, 5, "A", "", "a" * 300, "a\0b"], undo=True)
@together("field", ["type", "queue"], undo=True)
def test_what_is_no_name_is_rejected_and_not_kept(field: str, name: Any) -> None:
    body = {"type": "a", "args": [], field: name}
    for path, given in (("jobs", body), ("jobs/batch", {"jobs": [body]})):
        assert producer().post(path, given).status in (400, 422)
    assert not KnownName.objects.filter(kind=field).exists()
