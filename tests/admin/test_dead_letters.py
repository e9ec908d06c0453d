"""Dead letters by group, and bulk operations on a group."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import override_settings

from django_ojs.conf import settings
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import BulkOperation
from django_ojs.operations import fail, queues
from django_ojs.operations.jobs import (
    bulk_execution,
    dead_letter_groups,
)
from django_ojs.spec.failure import Failure, message_form
from django_ojs.storage.dialects.expressions import Moment
from tests.admin.users import VIEW, root, staff
from tests.cases import together
from tests.factories import MINUTE, active, age, hourly, in_state, jobs, push_many, read

pytestmark = [pytest.mark.django_db, pytest.mark.once]

PAGE = "/admin/django_ojs/deadletterjob/"
BULK = "/admin/django_ojs/bulkoperation/"
DEAD = hourly(1, on_exhaustion="dead_letter")


def dead(error: str = "Boom", message: str = "it broke", **values: Any) -> Any:
    claimed = active(**({"queue": "q", "retry": DEAD} | values))
    job = fail.fail(claimed.id, Failure(type=error, message=message))
    assert job.dead_letter
    return job.pk


def text(response: Any) -> str:
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def work() -> None:
    while bulk_execution.work_once() is not None:
        pass


def test_groups_have_a_queue_a_type_and_an_error_in_common() -> None:
    for _ in range(3):
        dead()
    dead("Timeout")
    dead(queue="other")
    last = dead(type="test.other", message="the last words")
    in_state("discarded", retry=hourly(1, on_exhaustion="discard"))
    found = dead_letter_groups.groups()
    counted = {(each.queue, each.type, each.error_type): each.count for each in found.groups}
    assert counted == {
        ("q", "test.job", "Boom"): 3,
        ("q", "test.job", "Timeout"): 1,
        ("other", "test.job", "Boom"): 1,
        ("q", "test.other", "Boom"): 1,
    }
    assert (found.seen, found.more) == (6, False)
    (mine,) = [each for each in found.groups if each.type == "test.other"]
    assert mine.sample is not None
    assert mine.sample.pk == last
    page = text(root().get(PAGE))
    assert "the last words" in page
    assert "Retry group" in page


def test_messages_that_differ_by_numbers_and_quotations_are_one_group() -> None:
    for message in ('order 17 of "ann" failed', 'order 4 of "bob" failed', "order of x failed"):
        dead(message=message)
    found = dead_letter_groups.groups()
    assert [(each.message, each.count) for each in found.groups] == [
        ("order … of … failed", 2),
        ("order of x failed", 1),
    ]
    client = root()
    page = text(client.get(PAGE))
    assert "order … of … failed" in page
    (address,) = re.findall(r'href="([^"]*create/retry/[^"]*order\+%E2%80%A6[^"]*)"', page)
    assert "2 jobs" in text(client.get(address))
    # Without the permission for payloads it is one group, without a message.
    hidden = text(staff(*VIEW, "operate_job").get(PAGE))
    assert "order … of" not in hidden
    assert dead_letter_groups.groups(by_message=False).groups[0].count == 3
    with override_settings(OJS={"ADMIN_REDACT": ["message"]}):
        assert "order … of" not in text(client.get(PAGE))


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ("card 4242 was declined", "card … was declined"),
        ("can't find 'x' in shop's list", "can't find … in shop's list"),
        ("550 no mailbox <a1@example.com>", "… no mailbox <…>"),
        ("took 1.5s, not 2", "took …, not …"),
        ("first line\nsecond", "first line…"),
        ("x" * 300, "x" * 199 + "…"),
        ("'shipping_address'", "'shipping_address'"),
        ("550", "550"),
        (None, ""),
    ],
)
def test_the_form_of_a_message(message: str | None, form: str) -> None:
    assert message_form(message) == form


def test_all_are_counted_where_only_the_newest_are_grouped() -> None:
    for _ in range(4):
        dead()
    found = dead_letter_groups.groups(newest=2)
    assert (found.seen, found.total) == (2, 4)


def test_groups_that_grew_last_come_first_if_asked_for() -> None:
    for key in (dead("Old"), dead("Old"), dead("Old"), dead("Older")):
        age(key, MINUTE)
    dead("New")
    client = root()

    def order(query: str) -> list[str]:
        return re.findall(r">(Old|Older|New)</a>", client.get(f"{PAGE}{query}").content.decode())

    assert order("")[0] == "Old"
    assert order("?sort=last")[0] == "New"
    assert set(order("?sort=%00")) == {"Old", "Older", "New"}
    found = dead_letter_groups.groups(most=1, latest_first=True)
    assert ([each.error_type for each in found.groups], found.found) == (["New"], 3)


def test_only_the_newest_are_grouped_and_the_page_says_so() -> None:
    for n in range(5):
        key = dead(f"Error{n}")
        jobs().filter(pk=key).update(finished_at=Moment(Now() - n * MINUTE))
    found = dead_letter_groups.groups(newest=2)
    assert [each.error_type for each in found.groups] == ["Error0", "Error1"]
    assert (found.seen, found.more) == (2, True)
    assert found.oldest is not None
    assert found.pruned_at == found.oldest + settings().keep_dead_letters
    queues.configure("q", {"dead_letter_ttl": "P3D"})
    found = dead_letter_groups.groups(newest=2)
    assert found.pruned_at == found.oldest + timedelta(days=3)


@pytest.mark.both
def test_a_group_is_retried_after_a_question_and_nothing_else_is() -> None:
    mine, other = [dead() for _ in range(3)], dead("Timeout")
    client = root()
    page = text(client.get(PAGE))
    addresses = re.findall(r'href="([^"]*create/retry/[^"]*Boom[^"]*)"', page)
    assert len(addresses) == 1
    question = client.get(addresses[0])
    assert "3 jobs" in text(question)
    assert not BulkOperation.objects.exists()
    (search,) = re.findall(r'name="q" value="([^"]*)"', question.content.decode())
    response = client.post(addresses[0], {"q": unescape(search)})
    assert response.status_code == 302
    assert "waiting" in text(client.get(response["Location"]))
    work()
    assert {read(key).state for key in mine} == {"available"}
    assert read(other).state == "discarded"
    operation = BulkOperation.objects.get()
    assert (operation.done, operation.ordered_by) == (3, "root")
    done = text(client.get(response["Location"]))
    assert "✓ done" in done
    assert "100 %" in done
    assert AuditEntry.primary.get().actor == "root"


def test_a_group_is_retried_elsewhere_with_more_attempts() -> None:
    key, client = dead(), root()
    body = {"q": "is:dead queue:q", "queue": "repaired", "max_attempts": "8", "priority": "3"}
    client.post(f"{BULK}create/retry/", body)
    work()
    job = read(key)
    assert (job.queue, job.max_attempts, job.priority) == ("repaired", 8, 3)
    assert "repaired" in text(client.get(BULK))


def test_two_operators_on_one_group_share_it() -> None:
    for _ in range(6):
        dead()
    for name in ("ann", "bob"):
        staff(*VIEW, "operate_job", name=name).post(
            f"{BULK}create/retry/", {"q": "is:dead queue:q error_type:Boom"}
        )
    work()
    first, second = BulkOperation.objects.order_by("pk")
    assert first.done + second.done == 6
    assert {first.ordered_by, second.ordered_by} == {"ann", "bob"}
    assert jobs().filter(state="available").count() == 6


def test_an_operation_is_stopped_with_a_button() -> None:
    for _ in range(4):
        dead()
    client = root()
    location = client.post(f"{BULK}create/delete/", {"q": "is:dead"})["Location"]
    bulk_execution.work_once(chunk=1)
    key = BulkOperation.objects.get().pk
    page = client.get(location).content.decode()
    assert f'value="{key}"' in page
    assert "no worker is running" in page
    client.post(f"{BULK}action/stop/", {"key": str(key)})
    work()
    assert jobs().filter(dead_letter=True).count() == 3
    page = text(client.get(location))
    assert "■ stopped" in page
    assert "/action/stop/" not in page


@pytest.mark.django_db(transaction=True)  # A rejection is published by another thread.
def test_what_was_skipped_is_reported_with_its_reason() -> None:
    for _ in range(3):
        dead()
    queues.configure("q", {"backpressure": {"max_depth": 1}})
    client = root()
    location = client.post(f"{BULK}create/retry/", {"q": "is:dead"})["Location"]
    work()
    page = text(client.get(location))
    assert "Skipped and failed, with reasons" in page
    operation = BulkOperation.objects.get()
    assert (operation.done, operation.failed) == (1, 2)
    assert all(error["job_id"] in page for error in operation.errors)


@pytest.mark.parametrize(
    ("name", "permissions", "allowed"),
    [
        ("retry", (), False),
        ("retry", ("operate_job",), True),
        ("cancel", ("operate_job",), True),
        ("delete", ("operate_job",), False),
        ("delete", ("administer_job",), True),
    ],
)
def test_an_order_needs_its_permission(
    name: str, permissions: tuple[str, ...], allowed: bool
) -> None:
    dead()
    push_many(2)
    client = staff(*VIEW, *permissions)
    address = f"{BULK}create/{name}/?q=type:test.*"
    assert (client.get(address).status_code == 200) is allowed
    assert client.post(address, {"q": "type:test.*"}).status_code == (302 if allowed else 403)
    assert BulkOperation.objects.exists() is allowed
    selected = client.get("/admin/django_ojs/job/?q=type:test.*&all=1")
    assert (f"/create/{name}/" in text(selected)) is allowed


@pytest.mark.parametrize("search", ["", "colour:red", "%00", "state:nothing", "queue:A"])
def test_an_order_that_means_everything_or_nothing_is_rejected(search: str) -> None:
    push_many(2)
    client = root()
    response = client.post(f"{BULK}create/cancel/", {"q": search}, follow=True)
    assert response.status_code == 200
    assert not BulkOperation.objects.exists()


def test_an_order_for_states_that_do_not_allow_it_is_explained() -> None:
    response = root().post(f"{BULK}create/retry/", {"q": "state:completed"}, follow=True)
    assert "Retry needs jobs that are discarded" in text(response)
    assert not BulkOperation.objects.exists()


@together(
    "address",
    [
        f"{BULK}x/change/",
        f"{BULK}99999999999999999999/change/",
        f"{BULK}%00/change/",
        f"{BULK}create/burn/?q=is:dead",
        f"{BULK}?before=x",
        f"{BULK}action/stop/?key=x",
        f"{PAGE}x/change/",
    ],
    undo=True,
)
def test_no_address_is_an_error_of_the_server(address: str) -> None:
    assert root().get(address).status_code in (200, 302, 404)
