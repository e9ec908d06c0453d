"""A client that sends what it is given over a socket, and a clock that a test can turn."""

from __future__ import annotations

import gzip
import http.client
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db.models import F

from django_ojs.models import Worker
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers import rescue
from tests.factories import age_all, take_back_dead
from tests.worker.waiting import BOUND

OJS_JSON = "application/openjobspec+json"


class Wire:
    """Sends requests to a server, with the headers that a client sends."""

    def __init__(self, url: str, **headers: str) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def send(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Send a request to a path below `/ojs`, and return the body of a response."""
        connection = http.client.HTTPConnection(self._address, timeout=BOUND)
        try:
            headers = {"Content-Type": OJS_JSON, "Accept": OJS_JSON, **self._headers}
            if body is None:
                del headers["Content-Type"]
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"/ojs{path}", data, headers)
            response = connection.getresponse()
            content = response.read()
            if response.getheader("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            found = json.loads(content)
            assert response.status == status, (response.status, found)
            return found
        finally:
            connection.close()

    def push(self, **job: Any) -> str:
        """PUSH a job and return its id."""
        body = {"type": "email.send", "args": ["a@example.com"]} | job
        found: str = self.send("POST", "/v1/jobs", body, 201)["job"]["id"]
        return found

    def fetch(self, **body: Any) -> list[Any]:
        """FETCH."""
        found: list[Any] = self.send(
            "POST", "/v1/workers/fetch", {"queues": ["default"], "count": 1} | body
        )["jobs"]
        return found

    def beat(self, **body: Any) -> Any:
        """BEAT."""
        return self.send("POST", "/v1/workers/heartbeat", body)

    def state(self, job_id: str) -> str:
        """Return the state of a job."""
        found: str = self.send("GET", f"/v1/jobs/{job_id}")["job"]["state"]
        return found


def pass_time(seconds: float) -> None:
    """Let this much time pass for all jobs and workers, and do the maintenance that is due then."""
    by = timedelta(seconds=seconds)
    age_all(by)
    Worker.primary.update(
        seen_at=F("seen_at") - by, beat_at=F("beat_at") - by, started_at=F("started_at") - by
    )
    take_back_dead()
    rescue.lapse()
    timeouts.enforce()
