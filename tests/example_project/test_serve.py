"""`manage.py serve` as its users start it: the site, the API behind keys, and a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

# The database is one of its own; which kind it is changes nothing here.
pytestmark = [pytest.mark.slow, pytest.mark.sqlite, pytest.mark.process]

SECONDS = 180.0


def test_the_site_is_up_until_a_signal_ends_it(tmp_path: Path) -> None:
    names = ("DJANGO_SETTINGS_MODULE", "OJS_DEMO_DATABASE")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", "0"],
        env={
            **inherited,
            "DATABASE_URL": f"sqlite:///{tmp_path / 'serve.sqlite3'}",
            "OJS_DEMO_VAR": str(tmp_path / "var"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"Orders\s+(http://127\.0\.0\.1:\d+)/\n", process.stdout.readline())
        assert found is not None
        url = found[1]
        assert status(f"{url}/") == 200
        assert status(f"{url}/static/admin/css/base.css") == 200
        assert status(f"{url}/ojs/manifest") == 200
        assert status(f"{url}/ojs/v1/queues") == 401
    finally:
        # `test_serve_open` sends SIGTERM too; the commands share how they wait for a signal.
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert status(f"{url}/") is None


def status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            found: int = response.status
            return found
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except urllib.error.URLError:
        return None
