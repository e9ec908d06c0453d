"""PUSH, FETCH, ACK and INFO over HTTP, beside views that do nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.benchmarks.connections import HOST, Connection, median_ms, rate, request
from tests.benchmarks.contenders import bare
from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.processes import Children, wait_until
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field
    from tests.benchmarks.producer import Producer

PUSH, INFO, CYCLE = "HTTP PUSH", "HTTP INFO", "HTTP FETCH and ACK"
FETCH_ONE, FETCH_MANY = "HTTP FETCH 1", "HTTP FETCH 100"
PUSH_ONE, PUSH_MANY = "HTTP PUSH of a batch of 1", "HTTP PUSH of a batch of 100"
#: The server process alone, without PostgreSQL.
PUSH_CPU = "HTTP PUSH, CPU"

#: The other rows.
NOTHING, BARE = "the same view, doing nothing", "a bare Django view"
INSERT = "a bare Django view with an INSERT"

#: As many as the threads of a gunicorn process in the example project.
_CONNECTIONS = 8
_MANY = 100
_JOBS = "/ojs/v1/jobs"
_PATHS = {NOTHING: "/nothing/x", BARE: "/bare/x", INSERT: "/bare_insert/x"}
_SERVER = [
    *("-m", "gunicorn", "django.core.wsgi:get_wsgi_application()", "--worker-class", "gthread"),
    *("--workers", "1", "--threads", str(_CONNECTIONS), "--keep-alive", "60"),
    *("--log-level", "warning", "--no-control-socket"),
]


def measure(field: Field, scale: Scale) -> None:
    """Let the views take turns behind one gunicorn of one process."""
    from tests.benchmarks import contenders

    ours = contenders.OURS
    producer = field.producer(ours)
    key: str = producer.do("key")
    rows = (ours, NOTHING, BARE)
    with _serve(field, producer) as (port, children):
        for round_ in range(scale.http_rounds):
            producer.do("reset")
            names = rows[round_ % 3 :] + rows[: round_ % 3]
            for name in (*names, INSERT) if round_ % 2 else (INSERT, *names):
                pushes = _pushes(key, _PATHS.get(name, _JOBS), scale.http_requests)
                before = children.cpu()
                field.results.add(PUSH, name, round_, rate(port, _shared(pushes)))
                took = (children.cpu() - before) / len(pushes) * 1_000_000
                field.results.add(PUSH_CPU, name, round_, took)
            ids = _stored(port, key)
            for name in names:
                paths = [_PATHS[name]] if name in _PATHS else [f"{_JOBS}/{each}" for each in ids]
                looks = [
                    request(key, "GET", paths[number % len(paths)])
                    for number in range(scale.http_requests)
                ]
                field.results.add(INFO, name, round_, rate(port, _shared(looks)))
            field.results.add(CYCLE, ours, round_, _cycles(port, key, scale.http_requests // 2))
            _fetches(field, producer, port, key, round_, scale)


def _pushes(key: str, path: str, number: int) -> list[bytes]:
    return [request(key, "POST", path, {"type": "bench.noop", "args": [n]}) for n in range(number)]


def _shared(requests: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [requests[start::_CONNECTIONS] for start in range(_CONNECTIONS)]


def _fetch(key: str, count: int) -> bytes:
    body = {"queues": ["default"], "count": count, "worker_id": "bench"}
    return request(key, "POST", "/ojs/v1/workers/fetch", body)


def _stored(port: int, key: str) -> list[str]:
    connection = Connection(port)
    ids = [json.loads(connection.ask(push))["job"]["id"] for push in _pushes(key, _JOBS, 50)]
    connection.close()
    return ids


def _cycles(port: int, key: str, number: int) -> float:
    # Claimed beforehand: an ACK needs the id of a claim, and what the client does between the two
    # is no cost of the server. A FETCH then takes as many as an ACK has finished.
    connection = Connection(port)
    claimed: list[str] = []
    while len(claimed) < number:
        jobs = json.loads(connection.ask(_fetch(key, min(_MANY, number - len(claimed)))))["jobs"]
        if not jobs:
            raise RuntimeError("too few jobs to fetch")
        claimed += [job["id"] for job in jobs]
    connection.close()
    requests = []
    for job in claimed:
        body = {"job_id": job, "worker_id": "bench", "result": {"ok": True}}
        requests.append(request(key, "POST", "/ojs/v1/workers/ack", body))
        requests.append(_fetch(key, 1))
    pairs = [requests[start : start + 2] for start in range(0, len(requests), 2)]
    shares = [
        [each for pair in pairs[start::_CONNECTIONS] for each in pair]
        for start in range(_CONNECTIONS)
    ]
    return rate(port, shares) / 2


def _fetches(
    field: Field, producer: Producer, port: int, key: str, round_: int, scale: Scale
) -> None:
    calls = max(2, scale.http_requests // 20)
    for measure_, count in ((PUSH_ONE, 1), (PUSH_MANY, _MANY)):
        batch = {"jobs": [{"type": "bench.noop", "args": [number]} for number in range(count)]}
        took = median_ms(port, [request(key, "POST", f"{_JOBS}/batch", batch)] * (calls + 1))
        field.results.add(measure_, producer.contender.name, round_, took)
    producer.do("fill", jobs=(calls + 1) * (_MANY + 1), kind="noop")
    for measure_, count in ((FETCH_ONE, 1), (FETCH_MANY, _MANY)):
        took = median_ms(port, [_fetch(key, count)] * (calls + 1))
        field.results.add(measure_, producer.contender.name, round_, took)


@contextmanager
def _serve(field: Field, producer: Producer) -> Iterator[tuple[int, Children]]:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [*_SERVER, "--bind", f"{HOST}:{port}"]
    children = Children([command], producer.environment, field.log)

    def responses() -> bool:
        with suppress(OSError, RuntimeError):
            connection = Connection(port)
            connection.ask(request("", "GET", "/ojs/v1/health"))
            connection.close()
            return True
        return False

    try:
        wait_until(responses, seconds=30, step=0.05, what="the server", watch=children)
        yield port, children
    finally:
        children.stop()


# The rest runs in the producer's process.


def key(contender: Contender) -> Any:
    """Make an API key, and return it; and the table of the bare INSERT."""
    from django.db import connection

    from django_ojs.operations.access import api_keys
    from django_ojs.spec.scopes import Scope

    with connection.cursor() as cursor:
        cursor.execute(bare.CREATE)
    return api_keys.create(name="bench", scopes=list(Scope))[1]
