"""How gunicorn serves the example project. `site_server.Site` starts it."""

import os
import signal
import threading
from typing import Any

wsgi_app = "example_project.wsgi:application"
# Threads, so that a FETCH that waits for a job does not block other requests.
worker_class = "gthread"
workers = 2
threads = 8
# Clients send many small requests: a connection is worth keeping.
keepalive = 75
graceful_timeout = 5
loglevel = "warning"
# Only the command that started this server controls it.
control_socket_disable = True

#: The read end of a pipe whose other end our parent holds.
PARENT = "OJS_SITE_PARENT"


def when_ready(server: Any) -> None:
    """End when the parent has ended, in whatever way: the pipe then has no writer."""
    pipe = int(os.environ[PARENT])

    def watch() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def post_worker_init(worker: Any) -> None:
    """Tell the streams of events when this worker stops."""
    from django_ojs.extensions.events.server_stop import watch_signals

    watch_signals()
