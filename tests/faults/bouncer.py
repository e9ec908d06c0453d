"""A PgBouncer in transaction mode before the suite's server, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.worker.waiting import BOUND, eventually

#: Debian's package puts it where only root's PATH looks.
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PORT = 6432

_CONFIGURATION = """\
[databases]
* = {server}

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
unix_socket_mode = 0777
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = {clients}
logfile = {folder}/log
pidfile =
"""


@contextmanager
def bouncer(server: dict[str, Any], pool: int, clients: int = 200) -> Iterator[dict[str, str]]:
    """Run it for a server (Django's settings), with so many connections to it.

    Yield Django's settings for clients.
    """
    assert PROGRAM is not None
    # Not pytest's folder: a socket's path is short, and PgBouncer's user is not root.
    folder = Path(tempfile.mkdtemp(prefix="ojs-pgb-"))
    to = {
        "host": server["HOST"],
        "port": server["PORT"] or 5432,
        "user": server["USER"],
        "password": server["PASSWORD"],
    }
    text = _CONFIGURATION.format(
        server=" ".join(f"{name}='{value}'" for name, value in to.items() if value),
        folder=folder,
        port=PORT,
        pool=pool,
        clients=clients,
    )
    (folder / "pgbouncer.ini").write_text(text)
    command = [PROGRAM, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:
        # It does not work as root; the server's own user may enter the folder of its socket.
        local = Path(server["HOST"]).is_absolute()
        owner = Path(server["HOST"]).stat().st_uid if local else 0
        user = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        (folder / "pgbouncer.ini").chmod(0o644)
        command[1:1] = ["--user", user.pw_name]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        socket = folder / f".s.PGSQL.{PORT}"
        eventually(lambda: socket.exists() or process.poll() is not None, "PgBouncer is up")
        assert process.poll() is None, (folder / "output").read_text()
        yield {"HOST": str(folder), "PORT": str(PORT)}
    finally:
        process.terminate()
        process.wait(BOUND)
        shutil.rmtree(folder, ignore_errors=True)
