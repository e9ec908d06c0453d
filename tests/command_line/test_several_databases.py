"""`manage.py ojs` where jobs are in several databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test import override_settings

import django_ojs as django_ojs_api
from django_ojs.models import Job
from tests.command_line.run import ojs

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    with override_settings(OJS={"DATABASES": ["default", "other"]}):
        yield


def test_the_command_line_shows_one_system() -> None:
    keys = {}
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            keys[alias] = str(django_ojs_api.enqueue(f"job.{alias}").id)
    # Figures are sums, lists come from one database after the other.
    (queue,) = ojs("stats", "--json").json["queues"]
    assert queue["depth"] == 2
    listed = ojs("jobs")
    assert listed.err.split() == ["Database", "default:", "Database", "other:"]
    assert all(key in listed.out for key in keys.values())
    listed = ojs("jobs", "--database", "other", "--json")
    assert [job["id"] for job in listed.json["jobs"]] == [keys["other"]]
    # An id is enough.
    assert ojs("show", keys["other"], "--json").json["id"] == keys["other"]
    assert ojs("cancel", keys["other"]).code == 0
    states = dict(Job.objects.using("other").values_list("type", "state"))
    assert states == {"job.other": "cancelled"}
    # A search acts in each database.
    assert ojs("cancel", "queue:default", "--yes").code == 0
    assert Job.objects.get().state == "cancelled"
    assert ojs("pause", "default").code == 0
    (one,) = ojs("stats", "--database", "other", "--json", "--queue", "default").json["queues"]
    assert one["state"] == "paused", one

    for arguments, problem in (
        (("jobs", "--json"), "--database must name one of default, other"),
        (("jobs", "--database", "nowhere"), "'nowhere' holds no jobs"),
    ):
        run = ojs(*arguments)
        assert (run.code, problem in run.err) == (2, True), run.err
