"""The server stops statements on jobs after a time: a `statement_timeout` of the worker's role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.models import Attempt
from tests.databases import ALIASES, DATABASES
from tests.faults import ledger
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

JOBS = 60

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


@contextmanager
def slow_ends(slow: str) -> Iterator[None]:
    """Let a trigger take 20 ms for each job that ends, and for some of a type for ever."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            CREATE FUNCTION slow_end() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM pg_sleep(CASE WHEN {slow} THEN 3600 ELSE 0.02 END);
                RETURN NEW;
            END $$;
            CREATE TRIGGER slow_end BEFORE UPDATE ON ojs_job FOR EACH ROW
            WHEN (OLD.state = 'active' AND NEW.state <> 'active') EXECUTE FUNCTION slow_end();
            """
        )
        try:
            yield
        finally:
            cursor.execute("DROP FUNCTION slow_end CASCADE")


def test_a_group_of_outcomes_that_takes_too_long_is_stored_in_parts(site: Site) -> None:
    # Together they take far more than the timeout; one by one they do not.
    options: dict[str, Any] = dict(DATABASES["default"].get("OPTIONS", {}))
    options["options"] = f"{options.get('options', '')} -c statement_timeout=500"
    site.variables["OJS_FAULTS_DATABASE"] = json.dumps({"OPTIONS": options})
    requests = [ojs.request("faults.effect") for _ in range(JOBS)]
    requests += [ojs.request("faults.rejected") for _ in range(JOBS)]
    first = [stored(handlers.effect.enqueue(0)), stored(handlers.rejected.enqueue())]
    jobs = ojs.enqueue_batch(requests)
    never = ", ".join(f"'{job.pk}'" for job in first)
    with slow_ends(f"NEW.id IN ({never})"):
        tree = site.start("--threads", "4")
        others = site.jobs.filter(pk__in=[job.id for job in jobs])
        eventually(lambda: not others.filter(finished_at=None).exists(), "the others are stored")
        # Two outcomes could not be stored at all: they are kept, and no other waits for them.
        assert set(site.jobs.filter(finished_at=None)) == set(first)
        assert "could not be stored together" in tree.log
        assert "statement timeout" in tree.log
        assert "it is kept and tried again in" in tree.log
    site.drained()
    counts = {state: site.jobs.filter(state=state).count() for state in ("completed", "discarded")}
    assert counts == {"completed": JOBS + 1, "discarded": JOBS + 1}
    # No job ran twice, and each failed run is in its history once.
    assert {start.run for start in ledger.starts()} == {1}
    assert Attempt.objects.filter(outcome="failed").count() == JOBS + 1
    assert "Traceback" not in tree.log
