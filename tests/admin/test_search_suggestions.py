"""What the search box suggests: the qualifiers, and the values that there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_ojs.extensions.statistics import rollups
from django_ojs.operations import beat
from django_ojs.operations.jobs.search_query import parse, qualifiers
from django_ojs.reports import search_suggestions
from django_ojs.spec.states import State
from tests.admin.test_jobs import LIST, text
from tests.admin.users import VIEW, root, staff
from tests.factories import push, worker

pytestmark = pytest.mark.django_db

ADDRESS = f"{LIST}suggestions/"


def suggested(*permissions: str) -> dict[str, Any]:
    response = staff(*permissions).get(ADDRESS)
    assert response.status_code == 200
    found: dict[str, Any] = json.loads(response.content)
    return found


def test_the_values_are_those_that_there_are_and_none_of_a_payload() -> None:
    push(queue="mail", type="mail.send", args=["a-secret"], meta={"tenant": "acme"})
    rollups.add(rollups.ENQUEUED, {("mail", "mail.send"): 1})
    rollups.flush()
    registration = beat.Registration(hostname="web-1", job_types=("mail.bounce",))
    worker("w", registration=registration)
    found = suggested(*VIEW)
    assert found["qualifiers"] == qualifiers()
    values = found["values"]
    assert "mail" in values["queue"]
    assert {"mail.send", "mail.bounce"} <= set(values["type"])
    assert values["host"] == ["web-1"]
    assert values["state"] == list(State)
    assert "secret" not in str(values)
    assert "acme" not in str(values)
    for qualifier, of_qualifier in values.items():
        assert all(parse(f"{qualifier}:{value}").filter for value in of_qualifier)


def test_the_number_of_values_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_suggestions, "MAX_VALUES", 3)
    for n in range(5):
        push(queue=f"queue-{n}")
        rollups.add(rollups.ENQUEUED, {(f"queue-{n}", f"type.t{n}"): 1})
        worker(f"w{n}", registration=beat.Registration(hostname=f"web-{n}"))
    rollups.flush()
    values = suggested(*VIEW)["values"]
    assert {len(values[name]) for name in ("queue", "type", "host")} == {3}


def test_only_users_who_may_see_jobs_get_them() -> None:
    assert staff("view_queue").get(ADDRESS).status_code == 403


def test_without_javascript_the_syntax_is_a_text_on_the_page() -> None:
    page = text(root())
    assert f'data-ojs-suggestions="{ADDRESS}"' in page
    assert all(f"<code>{example}</code>" in page for example in qualifiers().values())
