"""Relays that are killed between sending and noting: `python -m tests.outbox.killed_relay 200`.

This process enqueues and forks; a child sends, and kills itself before it notes anything. The next
one takes over and ends well, so that each death has jobs of its own to repeat.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django

JOBS = 3


def main(kills: int) -> None:
    """Kill so many relays."""
    django.setup()
    import django_ojs as ojs
    from django_ojs.models import Lease

    for kill in range(kills):
        wanted = [
            ojs.request("test.job", [JOBS * kill + index], queue="remote-a")
            for index in range(JOBS)
        ]
        ojs.enqueue_batch(wanted)
        assert _child(_die) == -signal.SIGKILL
        # Two seconds pass, which is when the lease of the dead ends.
        Lease.objects.filter(name__startswith="outbox").update(until="2020-01-01T00:00:00Z")
        assert _child(_send) == 0
        print(kill + 1, flush=True)


def _child(run: Any) -> int:
    from django.db import connections

    connections.close_all()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _die() -> None:
    from django_ojs.extensions.outbox import storage as outbox

    def killed(*args: Any, **kwargs: Any) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    outbox.sent = killed
    _send()


def _send() -> None:
    from django_ojs.extensions.outbox.relay_threads import relays
    from tests.outbox.waits import run

    (relay,) = relays(f"relay {os.getpid()}")
    run(relay)
    relay.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
