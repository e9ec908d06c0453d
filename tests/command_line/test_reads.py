"""A subcommand that shows something changes nothing: the database rejects whatever writes.

`export` is not among them: the audit trail has who has taken jobs, with their arguments, away.
"""

from __future__ import annotations

import pytest

from tests.cases import together
from tests.command_line.run import ojs
from tests.factories import in_state
from tests.http.test_reads import make_queues
from tests.reading import read_only

pytestmark = pytest.mark.django_db


@pytest.fixture
def dead() -> str:
    """Make a dead letter, and queues of each kind."""
    job = in_state("discarded", queue="other")
    make_queues()
    return str(job.pk)


@pytest.mark.both
@together(
    "line",
    [
        *("stats", "stats --queue other", "workers", "jobs queue:other", "show {dead} --args"),
        *("dead-letters", "workflows list", "limits list --all", "webhooks list", "cron list"),
        *("retry {dead} --dry-run", "run-now queue:other --dry-run", "cancel {dead} --dry-run"),
        *("purge other --state discarded --dry-run", "doctor"),
    ],
)
def test_no_subcommand_that_shows_something_writes(line: str, dead: str) -> None:
    # `doctor` keeps since when something has been wrong.
    with read_only(keeps_incidents=line == "doctor") as rejected:
        run = ojs(*line.format(dead=dead).split())
        assert rejected == []
    # Some have nothing to show, or a finding.
    assert run.code in (0, 1), run.err
