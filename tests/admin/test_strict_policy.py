"""The pages work under `default-src 'self'`: no inline script or style, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import django_ojs as ojs
from tests.admin.markup import structure
from tests.admin.test_pages import LISTS, fill
from tests.admin.users import at, root
from tests.operations.cron.scenes import register

pytestmark = [pytest.mark.django_db, pytest.mark.once]

PACKAGE = Path(ojs.__file__).parent


@pytest.mark.repeats
def test_a_page_needs_nothing_inline_and_nothing_from_elsewhere() -> None:
    fill(2)
    register("report")
    workflow = ojs.chain(ojs.request("order.charge"), ojs.request("order.ship")).enqueue()
    client = root()
    for page in (
        *(f"{page}/" for page in LISTS),
        "queue/queue-0/change/",
        "worker/worker-0/change/",
        "job/enqueue/",
        "job/enqueue/?type=testapp.add",
        "cronjob/report/change/",
        "cronjob/report/edit/",
        "cronjob/create/",
        f"workflow/{workflow.id}/change/",
        f"workflow/action/cancel/?key={workflow.id}",
        "cronjob/action/run/?key=report",
        "queue/action/configure/?key=queue-0",
        "queue/action/purge/?key=queue-0",
        "worker/action/terminate/?key=worker-0",
        "overview/action/start-maintenance/?key=1",
    ):
        response = client.get(at(page))
        assert response.status_code == 200, page
        assert structure(response.content.decode()).forbidden == [], page


def test_what_the_policy_forbids_is_recognised() -> None:
    found = structure(
        "<style></style><script>1</script><p style='x' onclick='y'></p><a href='//elsewhere'></a>"
    )
    assert len(found.forbidden) == 5


def test_no_script_evaluates_no_text_and_the_stylesheet_loads_nothing() -> None:
    static = PACKAGE / "static" / "django_ojs"
    for script in static.glob("*.js"):
        assert not re.search(
            r"\beval\(|innerHTML|document\.write|new Function|setAttribute\(.style",
            script.read_text(),
        )
    assert not re.search(r"@import|url\(|expression\(", (static / "admin.css").read_text())


def test_nothing_is_marked_as_safe() -> None:
    for path in [*PACKAGE.rglob("admin/*.py"), *PACKAGE.rglob("templatetags/*.py")]:
        assert not re.search(r"mark_safe\(|SafeString\(|is_safe", path.read_text()), path
    for path in PACKAGE.rglob("templates/django_ojs/admin/*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape off|\|\s*safeseq", path.read_text()), path
