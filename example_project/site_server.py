"""The site behind gunicorn, on 127.0.0.1, for as long as the command that needs it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from django.core.management.base import CommandError

from example_project.gunicorn_conf import PARENT

HOST: Final = "127.0.0.1"
_ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS = 30.0
# Longer than gunicorn's graceful_timeout.
_STOP_SECONDS = 10.0


class Site:
    """A gunicorn process that serves `url` from entry to exit.

    It runs with the settings of this process. `port` 0 takes any free one. Without a `log`,
    gunicorn writes to the output of this process. Raises CommandError when the port is taken.
    """

    def __init__(self, port: int, *, log: Path | None = None) -> None:
        # Bound here and passed on, so that no other process can take the port in between, and a
        # port in use is reported before anything else is done.
        self._socket = _bind(port)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        """Start, and return when the site responds."""
        watched, self._pipe = os.pipe()
        out = None
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            out = self._log.open("wb")
        command = [sys.executable, "-m", "gunicorn", "-c", "python:example_project.gunicorn_conf"]
        try:
            self._process = subprocess.Popen(
                [*command, "--bind", f"fd://{self._socket.fileno()}"],
                cwd=_ROOT,
                env={**os.environ, PARENT: str(watched)},
                pass_fds=(self._socket.fileno(), watched),
                stdout=out,
                stderr=subprocess.STDOUT if out else None,
                # Ctrl-C is for the command, which then ends this.
                start_new_session=True,
            )
        finally:
            os.close(watched)
            self._socket.close()
            if out is not None:
                out.close()
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let requests end, then stop."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        os.close(self._pipe)

    def serve_until(self, stop: threading.Event) -> None:
        """Wait. Raises CommandError when the site ends before `stop` is set."""
        while not stop.wait(0.5):
            self.check()

    def check(self) -> None:
        """Raise CommandError when the site has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise CommandError(f"The web server has ended, with exit code {code}.")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.check()
            try:
                urllib.request.urlopen(f"{self.url}/ojs/v1/health", timeout=_START_SECONDS).close()
                return
            except (urllib.error.URLError, OSError) as error:
                if time.monotonic() > deadline:
                    raise CommandError("The web server does not respond.") from error
            time.sleep(0.05)


def stop_signal() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set from now on."""
    stop = threading.Event()

    def set_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, set_stop)
    return stop


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As every server does: a port whose last server has just ended is free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else "not a port number"
        raise CommandError(
            f"Port {port} of {HOST} cannot be used ({reason}). Choose another one."
        ) from None
    return bound
