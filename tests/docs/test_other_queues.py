"""The page about other queues: what waits there becomes lines that `ojs import` takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from django_ojs import handlers
from tests.command_line.run import ojs
from tests.docs.pages import ROOT, blocks
from tests.factories import jobs

pytestmark = pytest.mark.django_db

LATER = (timezone.now() + timedelta(days=30)).replace(microsecond=0)
FUNCTION = "shop.services.send"


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module of the page, which imports the one that stands above it."""
    page = ROOT / "docs/how-to/move-from-another-queue.md"
    sources = {block.module: block.text for block in blocks(page) if block.module}
    for name in ("shop", "shop.jobs", "shop.move"):
        module(monkeypatch, name)
        exec(sources.get(name, ""), vars(sys.modules[name]))
    yield sys.modules["shop.move"]
    handlers.registry.remove("email.send")


def module(monkeypatch: pytest.MonkeyPatch, name: str, **values: Any) -> None:
    made = ModuleType(name)
    vars(made).update(values)
    monkeypatch.setitem(sys.modules, name, made)


def of_django_q2(move: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    tasks: list[dict[str, Any]] = [
        {"func": FUNCTION, "args": (7,), "kwargs": {}},
        {"func": FUNCTION, "args": (), "kwargs": {"template": "bye", "order_id": 8}},
    ]
    rows = [SimpleNamespace(task=task) for task in tasks]
    manager = SimpleNamespace(order_by=lambda _name: rows)
    module(monkeypatch, "django_q")
    module(monkeypatch, "django_q.models", OrmQ=SimpleNamespace(objects=manager))
    return move.django_q2()


def of_rq(move: Any, _monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    first = SimpleNamespace(func_name=FUNCTION, args=(7,), kwargs={})
    second = SimpleNamespace(func_name=FUNCTION, args=(8,), kwargs={"template": "bye"})
    registry = SimpleNamespace(
        get_job_ids=lambda: ["b"], get_scheduled_time={"b": LATER}.__getitem__
    )
    queue = SimpleNamespace(
        jobs=[first], scheduled_job_registry=registry, fetch_job={"b": second}.__getitem__
    )
    return move.rq(queue)


def of_dramatiq(move: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    eta = int(LATER.timestamp() * 1000)
    stored = {
        "dramatiq:email.msgs": [
            {"actor_name": "send", "args": (7,), "kwargs": {}, "options": {}},
        ],
        "dramatiq:email.DQ.msgs": [
            {"actor_name": "send", "args": (8, "bye"), "kwargs": {}, "options": {"eta": eta}},
        ],
    }
    decoded = SimpleNamespace(decode=lambda data: SimpleNamespace(**data))
    module(monkeypatch, "dramatiq", Message=decoded)
    return move.dramatiq(SimpleNamespace(hvals=stored.__getitem__), "email")


@pytest.mark.parametrize(
    ("waiting", "due"), [(of_django_q2, None), (of_rq, LATER), (of_dramatiq, LATER)]
)
def test_what_waits_in_another_queue_is_imported(
    move: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    waiting: Any,
    due: datetime | None,
) -> None:
    file = tmp_path / "waiting.jsonl"
    file.write_text("".join(f"{line}\n" for line in waiting(move, monkeypatch)))
    assert ojs("import", file).code == 0
    first, second = jobs().order_by("created_at")
    assert [(each.type, each.queue, each.args) for each in (first, second)] == [
        ("email.send", "email", [7]),
        ("email.send", "email", [8, "bye"]),
    ]
    assert (first.state, second.due_at and second.due_at.astimezone(UTC)) == ("available", due)


def test_what_is_no_json_is_an_error_before_there_is_a_file(move: Any) -> None:
    with pytest.raises(TypeError, match="datetime is not JSON"):
        json.loads(move.line(FUNCTION, (LATER,), {}))
