"""Names, errors and registrations of workers are data: they change no page's structure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.utils import timezone

from django_ojs.models import ApiKey
from django_ojs.operations import ack, fail, keyset
from django_ojs.spec import json
from django_ojs.spec.failure import Failure
from tests import factories
from tests import model_factories as rows
from tests.admin.markup import HOSTILE, structure
from tests.admin.test_pages import BASE
from tests.admin.users import at, root
from tests.cases import case, named, together

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Something that carries texts: `make` stores one and returns the pages of it alone."""

    make: Callable[[str], list[str]]
    #: The pages that show all of them.
    lists: tuple[str, ...]


def workers(text: str) -> list[str]:
    factories.WorkerFactory(
        id=text,
        hostname=text,
        queues=(text, "held"),
        labels=(text,),
        version=text[:64],
        concurrency=3,
        pid=9,
    )
    ack.ack(factories.active(text, queue="held").id)
    fail.fail(factories.active(text, queue="held").id, Failure(type=text, message=text))
    factories.active(text, queue="held", args=[text])
    return [f"worker/{quote(text)}/{page}/" for page in ("change", "history")]


def events(text: str) -> list[str]:
    rows.EventFactory(
        type="job.failed",
        subject=text,
        queue=text,
        data={"error": {"message": text, "backtrace": [text]}, "worker_id": text, "x": text},
    )
    return []


def queues(text: str) -> list[str]:
    # No client can make a queue of such a name; another program's row may have it.
    rows.QueueFactory(name=text, paused_at=timezone.now())
    rows.RollupFactory(queue=text, type=text, enqueued=1, failed=1)
    return []


def outbox(text: str) -> list[str]:
    entry = rows.OutboxEntryFactory(
        type=text,
        queue=text,
        destination=text[:32],
        state="rejected",
        error_code=text[:64],
        error_message=text,
        envelope=json.dumps({"type": text, "args": [text, {text: text}]}),
    )
    return [f"outboxentry/{entry.pk}/{page}/" for page in ("change", "history")]


def api_keys(text: str) -> list[str]:
    now = timezone.now()
    # No operation stores such a name.
    key = ApiKey.objects.create(
        name=text[:100],
        prefix=text[:16],
        digest="0",
        queues=[text],
        created_at=now - timedelta(days=30),
        expires_at=now + timedelta(days=1),
        last_used_at=now,
    )
    return [f"apikey/{key.pk}/{page}/" for page in ("change", "replace")]


def workflows(text: str) -> list[str]:
    values = {"state": "failed", "steps_left": 0, "finished_at": timezone.now()}
    workflow = rows.WorkflowFactory(type="chain", name=text[:255], queues=[text], **values)
    rows.WorkflowStepFactory(
        workflow_id=workflow.pk,
        key=text,
        name=text,
        path=text,
        type=text[:255],
        condition="all_succeeded",
        state="failed",
        error={"type": text, "message": text},
    )
    return [f"workflow/{workflow.pk}/{page}/" for page in ("change", "history")]


KINDS = (
    Kind(make=workers, lists=("worker/", "queue/held/change/")),
    Kind(make=events, lists=("event/", "event/?type=job.failed")),
    Kind(make=queues, lists=("overview/", "queue/")),
    Kind(make=outbox, lists=("outboxentry/",)),
    Kind(make=api_keys, lists=("overview/", "apikey/")),
    Kind(make=workflows, lists=("workflow/",)),
)
#: A list shows so many at once; the overview does not show many more.
TOGETHER = 5


def shown(client: Client, pages: Iterable[str]) -> list[list[tuple[str, tuple[str, ...]]]]:
    found = []
    for page in pages:
        response = client.get(at(page))
        assert response.status_code == 200, page
        read = structure(response.content.decode())
        assert read.forbidden == [], page
        found.append(read.tags)
    return found


def pages_with(
    client: Client, kind: Kind, texts: list[str]
) -> tuple[list[Any], list[list[tuple[str, tuple[str, ...]]]]]:
    """Return the structure of the pages of each, and that of the lists of all of them."""
    own = []
    for text in texts:
        with named(text):
            own.append(shown(client, kind.make(text)))
    return own, shown(client, kind.lists)


@pytest.mark.repeats
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.make.__name__)
def test_a_string_changes_no_pages_structure(kind: Kind) -> None:
    client = root()
    with case("harmless"):
        own, lists = pages_with(client, kind, [f"harmless-{n}" for n in range(TOGETHER)])
    for start in range(0, len(HOSTILE), TOGETHER):
        texts = HOSTILE[start : start + TOGETHER]
        with case(", ".join(texts)):
            found = pages_with(client, kind, texts)
            for text, harmless, hostile in zip(texts, own, found[0], strict=True):
                assert hostile == harmless, text
            assert found[1] == lists


@together(
    "address",
    [
        "queue/%00/change/",
        "queue/..%2f..%2f/change/",
        "worker/%00/change/",
        "worker/%00/history/",
        "queue/action/pause/?key=%00",
        "queue/action/purge/?key=%00&key=a",
        "worker/action/quiet/?key=%ff%fe",
        "event/?subject=%00",
        "event/?type=%00",
        "event/?before=99999999999999999999999",
        f"event/?before={keyset.write((-1,))}",
        f"event/?after={keyset.write((2**53 - 1,))}",
        "workflow/?q=%00&state=%00&before=%00",
        "workflow/%00/change/",
        "queue/?p=99999999999&q=%00&sort=__class__",
        "queue/?p=²",
        "worker/?p=0",
        "overview/action/start-maintenance/?key=2",
        "queue/action/nothing/?key=a",
        "queue/action/pause/?key=a&next=//elsewhere.example/",
    ],
    undo=True,
)
def test_an_address_nobody_would_type_is_no_error_of_the_server(address: str) -> None:
    client = root()
    assert client.get(at(address)).status_code in (200, 302, 404)
    if "action/" in address:
        response = client.post(
            at(address.partition("?")[0]), {"key": "\0", "next": "//elsewhere.example/"}
        )
        assert response.status_code in (200, 302, 404)
        assert "elsewhere" not in response.get("Location", "") + response.content.decode()


@together(
    ("model", "action"),
    [("apikey", "revoke"), ("outboxentry", "requeue"), ("limitkey", "pause_selected")],
    undo=True,
)
def test_an_action_on_rows_that_cannot_be_there_is_no_error_of_the_server(
    model: str, action: str
) -> None:
    client = root()
    for keys in ("a", "\0", "1e9", "-1", "9" * 30, "9" * 5_000, "²", "\u2028", ["1", "a"], ""):
        for given in ({"action": action}, {"action": action, "index": "x"}, {"action": "nothing"}):
            response = client.post(at(f"{model}/"), {**given, "_selected_action": keys})
            assert response.status_code in (200, 302), keys


@pytest.mark.parametrize(
    ("address", "list_address", "why"),
    [
        ("job/01920000-0000-7000-8000-000000000000/change/", "job/", "pruned or deleted"),
        ("queue/gone/change/", "queue/", "no such queue"),
        ("worker/gone/change/", "worker/", "no such worker"),
        ("bulkoperation/99/change/", "bulkoperation/", "no such bulk operation"),
        ("event/99/change/", "event/", "This page does not exist"),
    ],
)
def test_an_old_link_leads_on_to_the_list(address: str, list_address: str, why: str) -> None:
    response = root().get(at(address))
    assert response.status_code == 404
    page = response.content.decode()
    assert why in page
    assert f'<a href="{BASE}{list_address}">' in page
