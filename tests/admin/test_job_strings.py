"""Payloads and searches are data: they change no page's structure."""

from __future__ import annotations

from functools import cache

import pytest

from django_ojs.models import Attempt
from django_ojs.storage import database
from tests.admin.markup import HOSTILE, structure
from tests.admin.test_pages import BASE
from tests.admin.users import at, root
from tests.cases import case
from tests.factories import hourly, in_state, jobs
from tests.model_factories import BulkOperationFactory


@cache
def harmless_pages(text: str) -> list[list[tuple[str, tuple[str, ...]]]]:
    """Return the structure of the pages with a harmless text: the same in each test."""
    with case(text):
        return pages_with(text)


def pages_with(text: str) -> list[list[tuple[str, tuple[str, ...]]]]:
    job = in_state("discarded", retry=hourly(1, on_exhaustion="dead_letter"))
    error = {"type": text, "message": text, "backtrace": [text, text]}
    # No client can make such names; another program's row may have them.
    jobs().filter(pk=job.pk).update(
        type=text,
        queue=text,
        worker_id=text,
        args=[text, {text: text}],
        meta={text: text},
        result=text,
        error=error,
        options={"tags": [text], "unique": {text: text}},
        discard_reason=text[:16],
    )
    alias = database.alias()
    Attempt.objects.using(alias).filter(job_id=job.pk).update(worker_id=text, error=error)
    operation = BulkOperationFactory(
        filter={"error_type": text, "tags": [text]},
        ordered_by=text,
        stopped_by=text,
        reasons={text: 1},
        errors=[{"job_id": text, "error": text}],
        matched=1,
        failed=1,
    )
    client = root()
    found = []
    for page in (
        *("job/", f"job/{job.pk}/change/", f"job/{job.pk}/history/", "bulkoperation/"),
        *(f"bulkoperation/{operation.pk}/change/", "deadletterjob/"),
        *(f"job/action/retry-with/?key={job.pk}", f"job/action/delete/?key={job.pk}"),
    ):
        response = client.get(at(page))
        assert response.status_code == 200, page
        read = structure(response.content.decode())
        assert read.forbidden == [], page
        found.append(read.tags)
    return found


@pytest.mark.repeats
@pytest.mark.once
@pytest.mark.django_db
@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_job_carries_changes_no_pages_structure(text: str) -> None:
    # What cannot be a name of ours has no links to search for it.
    expected = harmless_pages("harmless" if set(text) == {"x"} else "Not A Name")
    assert pages_with(text) == expected


@pytest.mark.repeats
@pytest.mark.django_db
def test_what_is_searched_for_changes_no_pages_structure() -> None:
    client = root()
    for text in HOSTILE:
        for search in (text, f"tag:{text}", f'meta.{text}:"{text}"', f"error:{text}"):
            response = client.get(f"{BASE}job/", {"q": search, "after": text, "before": text})
            assert response.status_code == 200, search
            assert structure(response.content.decode()).forbidden == [], search
