"""The core is whole without any extension, also without those that are always installed.

Events, statistics, signals, the audit trail, bounds, limits, payloads and bulk operations are
extensions as any other. Their tables are there: the schema is that of the product.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import KIND, NAMES_VARIABLE
from tests.extensions.sites import site
from tests.worker.processes import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

OPERATIONS = "tests/operations"
#: The core's own tests of enqueue, FETCH, ACK, FAIL, CANCEL, the promotion and the rescue. With
#: them run those of the queues of a worker.
TESTS = (
    *(f"test_{each}.py" for each in ("push", "fetch", "ack", "fail", "cancel", "promotion")),
    "workers/test_rescue.py",
)
#: A scene that is about an extension: a key that is limited.
ABOUT_A_LIMIT = (
    "test_fetch.py::TestWhetherAFetchMayFindAJob"
    "::test_one_that_is_held_is_none_until_its_key_is_to_be_checked"
)

CONFIG = """
import django.contrib.admin
from django.apps import AppConfig
from django_ojs.apps import DjangoOJSConfig

django.contrib.admin.autodiscover = lambda: None  # A door, which still imports some.

class CoreConfig(DjangoOJSConfig):
    name = "django_ojs"

    def import_models(self):
        AppConfig.import_models(self)

    def ready(self):
        pass
"""
LIFE = """
import sys
from datetime import timedelta
from django.db.models import F
import django_ojs as ojs
from django_ojs.hooks import registry
from django_ojs.operations import ack, fail, fetch, promotion
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure

def states():
    return [str(ojs.get_job(each.id).state) for each in (done, failed, unwanted, lost)]

assert not registry.numbers()
done, failed, unwanted, lost = (ojs.enqueue("site.note", [number]) for number in range(4))
ojs.cancel(unwanted.id)
claimed = fetch.fetch(["default"], count=4)
assert [job.id for job in claimed] == [done.id, failed.id, lost.id]
ack.ack(done.id)
fail.fail(failed.id, Failure(type="Boom", message="boom"))
before = states()
day = timedelta(days=1)
ojs.Job.primary.update(due_at=F("due_at") - day, lease_until=F("lease_until") - day)
promoted, taken_back = promotion.promote(), rescue.lapse()
imported = [each for each in sys.modules if each.startswith("django_ojs.extensions.")]
print(json.dumps([before, promoted, taken_back, states(), imported]))
"""
#: A site of programs: no users, no sessions, no admin.
WITHOUT_DJANGOS_APPS = """
INSTALLED_APPS = [*json.loads(os.environ["SITE_APPS"]), "site_jobs"]
MIDDLEWARE, TEMPLATES, OJS = [], [], {}
ROOT_URLCONF = "django_ojs.http.urls"
"""
ASK_THE_API = """
from django.test import Client
from django_ojs.operations.access import api_keys
call_command("check")
call_command("migrate", verbosity=0)
client = Client()
key = api_keys.create(name="shop", scopes=["admin"])[1]
job = {"type": "site.note", "args": [1]}
def push(**headers):
    given = {"data": job, "content_type": "application/json", "headers": headers}
    return client.post("/ojs/v1/jobs", **given).status_code
print(json.dumps([push(), push(authorization=f"Bearer {key}"), push(authorization="Bearer x")]))
"""


def test_the_tests_of_its_operations_pass_without_any_extension() -> None:
    own = ("DATABASE_URL", "OJS_TEST_SQLITE_FOLDER", NAMES_VARIABLE)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.plugins.core_alone", "-n0", "-q"),
            *("-p", "no:cacheprovider", f"--deselect={OPERATIONS}/{ABOUT_A_LIMIT}"),
            *(f"{OPERATIONS}/{each}" for each in TESTS),
            "tests/worker/test_queue_selection.py",
        ],
        cwd=ROOT,
        # Its databases are its own, and not those of this run.
        env={name: value for name, value in os.environ.items() if name not in own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 deselected" in done.stdout


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(KIND == "mariadb", reason="sites are on the other two")
def test_a_job_lives_in_a_process_that_has_imported_no_extension(
    new_interpreters: None, tmp_path: Path
) -> None:
    with site(tmp_path) as made:
        (tmp_path / "core_site.py").write_text(CONFIG)
        made.run(("django_ojs",), "call_command('migrate', verbosity=0)")
        found = made.ask(("core_site.CoreConfig",), LIFE)
    before, promoted, taken_back, after, imported = found
    assert before == ["completed", "retryable", "cancelled", "active"]
    assert (promoted, taken_back) == (1, 1)
    assert after == ["completed", "available", "cancelled", "available"]
    assert not imported


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(KIND == "mariadb", reason="sites are on the other two")
def test_the_api_needs_no_app_of_django(new_interpreters: None, tmp_path: Path) -> None:
    with site(tmp_path) as made:
        with (tmp_path / "site_settings.py").open("a") as settings:
            settings.write(WITHOUT_DJANGOS_APPS)
        assert made.ask(("django_ojs",), ASK_THE_API) == [401, 201, 401]
