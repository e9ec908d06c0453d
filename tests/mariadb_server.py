"""A MariaDB of the system's packages, for one test run: a folder of its own, on a socket only.

The first process of the run starts it, and a keeper process with it. The keeper reads a pipe of
which only that first process has the other end: the pipe ends with the process, in whatever way,
and then the keeper stops the server and removes the folder.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Data that is thrown away need not survive a power cut.
_OPTIONS = (
    "--skip-networking",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=64M",
    "--sync-binlog=0",
    "--skip-log-bin",
    "--max-connections=300",
    "--character-set-server=utf8mb4",
    # What Debian has. The tables of the jobs must not depend on it.
    "--collation-server=utf8mb4_general_ci",
    "--performance-schema=OFF",
)
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 1.0


class NotInstalled(RuntimeError):
    """The machine has no MariaDB server."""


def programs() -> tuple[str, str] | None:
    """Return the server and the program that makes its folder, if the machine has them."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    server = shutil.which("mariadbd", path=path)
    install = shutil.which("mariadb-install-db", path=path)
    return (server, install) if server and install else None


def start(home: Path) -> str:
    """Start a server whose data lie under `home`, and return its socket."""
    found = programs()
    if found is None:
        raise NotInstalled(
            "OJS_TEST_DATABASE=mariadb: no mariadbd here (Debian: apt-get install mariadb-server)"
        )
    server, install = found
    data = home / "data"
    user = [f"--user={_account()}"] if os.geteuid() == 0 else []
    make_data(install, data, user)
    socket = home / "socket"
    command = [
        *(server, "--no-defaults", f"--datadir={data}", f"--socket={socket}"),
        *(f"--pid-file={home / 'pid'}", *user, *_OPTIONS),
        # A server that starts deletes the temporary tables of another one from a shared folder.
        f"--tmpdir={data}",
    ]
    keeper, pipe = start_kept(home, command, home / "log")
    atexit.register(leave, pipe, keeper)
    wait_for(socket, keeper, home / "log")
    return str(socket)


def wait_for(socket: Path, keeper: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server listens on its socket."""
    deadline = time.monotonic() + _START_SECONDS
    while not socket.exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The server did not start:\n{log.read_text()[-2000:]}")
        time.sleep(_POLL_SECONDS)


def make_data(install: str, data: Path, user: list[str]) -> None:
    """Make the folder of a server's data, with a root that needs no password."""
    subprocess.run(
        [
            *(install, "--no-defaults", f"--datadir={data}", *user),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def start_kept(home: Path, command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server with its keeper; return that, and the end of its pipe to be kept open."""
    read, write = os.pipe()
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        # In a session of its own: Ctrl-C in the terminal is not meant for the server.
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(read), str(home), *command],
            pass_fds=[read],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    os.close(read)
    return keeper, write


def _account() -> str:
    # A server that root starts changes to this account; it wants to be told so.
    return "root"


def leave(write: int, keeper: subprocess.Popen[bytes]) -> None:
    """End a server that was started by `start_kept`."""
    os.close(write)
    keeper.wait(_STOP_SECONDS)


def _keep(pipe: int, home: Path, command: list[str]) -> None:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while server.poll() is None and not select.select([pipe], [], [], _LOOK_SECONDS)[0]:
        pass
    if server.poll() is not None:
        sys.exit(1)  # It ended by itself: the reason is in the log, which stays.
    server.send_signal(signal.SIGKILL)
    server.wait()
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
