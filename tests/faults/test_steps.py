"""Jobs with steps in processes that are killed: what is stored is not done again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.checker import Fault
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.testapp.models import Thing
from tests.worker.acceptance.ledger import stored

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]

#: The steps of `faults.steps`, by their numbers. Those of `steps.run` have their effects at once.
STEPS = ("charge", "reserve", "nap", "reserved", "ship")
RUN = ("charge", "ship")


def effects(job: str) -> Counter[str]:
    """How often the functions of the steps were called."""
    return Counter(line.event for line in ledger.lines() if line.job == job and line.event in RUN)


@pytest.mark.parametrize("where", ["storing step", "stored step"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=STEPS)
def test_killed_at_a_step_only_that_one_is_done_again(
    site: Site, tmp_path: Path, number: int, where: str
) -> None:
    job = stored(handlers.stepped.enqueue())
    flag = tmp_path / "killed"
    site.start(sabotage={"die": where, "step": number, "flag": str(flag)})
    site.drained()
    site.faults.append(Fault(kind="kill", pid=int(flag.read_text())))
    job.refresh_from_db()
    assert job.state == "completed"
    # An INSERT by itself is committed when it returns; that of SQLite when its cursor is closed.
    again = Counter(RUN)
    is_twice = where == "storing step" and STEPS[number] in RUN
    again.update([STEPS[number]] if is_twice else [])
    assert effects(str(job.pk)) == again
    assert Thing.objects.filter(name=f"effect {job.pk}").count() == 1
    charged, reserved, signalled, shipped = job.result
    assert charged <= reserved == signalled <= shipped
    assert job.attempts.filter(outcome="lost").count() == 1
