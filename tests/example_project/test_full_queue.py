"""The demonstration's bounded queue fills, rejects, drains and clears, over a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_ojs.extensions.events.models import Event
from django_ojs.models import Job
from example_project.demo import full_queue
from tests.databases import ALIASES

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]


def test_it_shows_what_a_client_sees_and_leaves_nothing(
    process_environment: dict[str, str], monkeypatch: Any, tmp_path: Path
) -> None:
    # The site's process works on the databases of this test.
    for name, value in process_environment.items():
        monkeypatch.setenv(name, value)
    lines: list[str] = []

    assert full_queue.show(lines.append, logs=tmp_path) == []

    text = "\n".join(lines)
    assert "job 16 is stored with a warning: X-OJS-Queue-Depth: 16" in text
    assert "job 21: HTTP 429  Retry-After: 5  X-OJS-Queue-Depth: 20" in text
    assert '"code": "QUEUE_FULL"' in text
    assert "the same job again: HTTP 201" in text
    assert not Job.objects.filter(queue=full_queue.QUEUE).exists()
    assert not Event.objects.filter(
        queue=full_queue.QUEUE, type__startswith="backpressure"
    ).exists()


def test_a_broken_promise_is_named() -> None:
    failed = full_queue.Response(status=500, headers={}, body={"error": {"code": "backend_error"}})
    assert len(full_queue._problems([failed], failed, failed, [])) == 4
