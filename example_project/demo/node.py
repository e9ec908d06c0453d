"""The worker in Node, over HTTP: the site, a key of its own, and the process."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from django.core.management.base import CommandError

from django_ojs.operations.access import api_keys
from django_ojs.spec.scopes import Scope
from example_project.shop.jobs import COLLECTIONS
from example_project.site_server import Site

WORKER = Path(__file__).resolve().parents[1] / "workers" / "node" / "worker.mjs"
#: The first Node whose `fetch` needs no package.
MIN_NODE_VERSION = 18
_BEAT_MS = 1_000  # The example's HEARTBEAT_INTERVAL.
#: Its jobs mostly wait for the server, which the other workers keep busy.
_CONCURRENCY = 32
_STOP_TIMEOUT_SECONDS = 40


def unavailable_reason() -> str:
    """Return why the worker cannot run on this machine, or ""."""
    node = shutil.which("node")
    if node is None:
        return "Node is not installed"
    version = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=False
    ).stdout
    major = version.strip().removeprefix("v").partition(".")[0]
    if major.isdecimal() and int(major) >= MIN_NODE_VERSION:
        return ""
    return f"Node is older than {MIN_NODE_VERSION}"


@contextmanager
def node_worker(*, logs: Path) -> Iterator[str]:
    """Serve the site and run the worker, whose key is for its queue only; yield the site's URL."""
    key, secret = api_keys.create(
        name="demo, worker in Node",
        scopes=[Scope.WORKER],
        queues=[COLLECTIONS],
        expires=timedelta(hours=1),
    )
    try:
        with (
            Site(0, log=logs / "gunicorn.log") as site,
            (logs / "node.log").open("wb") as out,
            _stopping(_start(site.url, secret, out.fileno())),
        ):
            yield site.url
    finally:
        api_keys.revoke(key.prefix)


def _start(url: str, key: str, out: int) -> subprocess.Popen[bytes]:
    variables = {
        "OJS_URL": url,
        "OJS_API_KEY": key,
        "OJS_QUEUES": COLLECTIONS,
        "OJS_BEAT_MS": str(_BEAT_MS),
        "OJS_CONCURRENCY": str(_CONCURRENCY),
    }
    return subprocess.Popen(
        ["node", str(WORKER)],
        env={**os.environ, **variables},
        stdout=out,
        stderr=subprocess.STDOUT,
        # Ctrl-C reaches the command only, which stops the worker.
        start_new_session=True,
    )


@contextmanager
def _stopping(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.returncode:
        raise CommandError(f"The worker in Node ended with exit code {process.returncode}.")
