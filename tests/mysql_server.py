"""A MySQL for one test run: a folder of its own, on a socket only (see `mariadb_server`).

`OJS_TEST_MYSQLD` names the server program; without it, it is the `mysqld` of the system.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from pathlib import Path

from tests.mariadb_server import NotInstalled, leave, start_kept, wait_for

#: Data that is thrown away need not survive a power cut.
_OPTIONS = (
    "--skip-networking",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-buffer-pool-size=256M",
    "--skip-log-bin",
    "--max-connections=300",
    "--performance-schema=OFF",
)


def program() -> str | None:
    """Return the server, if the machine has it. MariaDB has a program of the same name."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    found = shutil.which(os.environ.get("OJS_TEST_MYSQLD", "mysqld"), path=path)
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    return None if "MariaDB" in said.stdout else found


def start(home: Path) -> str:
    """Start a server whose data lie under `home`, and return its socket."""
    server = program()
    if server is None:
        raise NotInstalled("OJS_TEST_DATABASE=mysql: no mysqld here; OJS_TEST_MYSQLD may name it")
    data, socket = home / "data", home / "socket"
    command = [server, "--no-defaults", f"--datadir={data}"]
    if os.geteuid() == 0:
        command.append("--user=root")
    made = subprocess.run([*command, "--initialize-insecure"], capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"MySQL made no data:\n{made.stderr[-2000:]}")
    command += [f"--socket={socket}", f"--pid-file={home / 'pid'}", f"--tmpdir={data}", *_OPTIONS]
    keeper, pipe = start_kept(home, command, home / "log")
    atexit.register(leave, pipe, keeper)
    wait_for(socket, keeper, home / "log")
    return str(socket)
