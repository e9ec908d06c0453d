"""A remote django_ojs: gunicorn in a process of its own, with a database of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
from django.db.models import QuerySet

from django_ojs.models import Job
from tests import fork_server
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND, eventually


class Remote:
    """Serves the alias `other`. It can be ended and started again on the same port."""

    def __init__(
        self,
        environment: Mapping[str, str],
        log: Path,
        settings: str = "tests.outbox.remote_settings",
    ) -> None:
        self._environment = {**environment, "DJANGO_SETTINGS_MODULE": settings}
        self._log = log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = fork_server.popen(
                [
                    *(sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{self._port}"),
                    *("--workers", "1", "--threads", "2", "--no-control-socket"),
                    "tests.outbox.wsgi",
                ],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._responses, "the remote server responds")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(BOUND)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(BOUND)
            self._process = None
            if os.environ.get("OJS_TEST_DEBUG"):
                print(self._log.read_text())

    @property
    def jobs(self) -> QuerySet[Job]:
        """What it has, oldest first."""
        return Job.objects.using("other").order_by("created_at", "id")

    def _responses(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            # Plain HTTP: to load the certificates would take most of the time of a request.
            got = httpx.get(f"{self.url}/ojs/manifest", trust_env=False, verify=False)
            return got.status_code == 200
        except httpx.HTTPError:
            return False
