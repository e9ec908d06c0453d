"""A Galera cluster of three MariaDB nodes on loopback, for one test: a folder of its own.

A node is killed as a machine dies, and joins again as its operator would start it: by the changes
it has missed (IST), or by a copy of another node (SST). The keeper of each node (see
`mariadb_server`) ends it with the test process, in whatever way that ends.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests import mariadb_server

#: Who starts as root runs the nodes as this account: rsync does not write to a folder of root's.
ACCOUNT = "mysql"
NODES = 3
_PROVIDERS = (
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib64/galera/libgalera_smm.so",
)
_OPTIONS = (
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-buffer-pool-size=96M",
    "--innodb-log-file-size=48M",
    "--max-connections=200",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
    "--performance-schema=OFF",
    # What Galera wants.
    "--binlog-format=ROW",
    "--innodb-autoinc-lock-mode=2",
    "--wsrep-on=ON",
    "--wsrep-cluster-name=ojs-test",
    "--wsrep-sst-method=rsync",
)
#: A node that does not answer is out of the group after three seconds.
_PROVIDER_OPTIONS = (
    "gcache.size=32M;gcache.page_size=16M;evs.keepalive_period=PT0.25S;"
    "evs.inactive_check_period=PT0.25S;evs.suspect_timeout=PT1.5S;evs.inactive_timeout=PT3S"
)
_JOIN_SECONDS = 120.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1
_NO_POSITION = "00000000-0000-0000-0000-000000000000:-1"


def missing() -> str | None:
    """Return what a cluster needs and this machine does not have; None where it has all."""
    if mariadb_server.programs() is None:
        return "no mariadbd here (Debian: apt-get install mariadb-server)"
    if _provider() is None:
        return "no Galera provider here (Debian: apt-get install galera-4)"
    if find_spec("MySQLdb") is None:
        return "no driver in this environment (pip install mysqlclient)"
    if shutil.which("rsync") is None:
        return "no rsync here, by which a node gets its data (Debian: apt-get install rsync)"
    return None


def _provider() -> str | None:
    return next((path for path in _PROVIDERS if Path(path).exists()), None)


class Node:
    """A node of the cluster; it is started by `Cluster`."""

    def __init__(self, number: int, home: Path, ports: dict[str, int]) -> None:
        self.number = number
        self.port = ports["sql"]
        self.ports = ports
        self._home = home / f"node{number}"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    @property
    def log(self) -> Path:
        return self._home.with_suffix(".log")

    @property
    def _temporary(self) -> Path:
        # Not in the folder of the data, which a copy of another node fills.
        return self._home / "tmp"

    def create(self) -> None:
        """Make the folder of its data."""
        found = mariadb_server.programs()
        assert found is not None
        for folder in (self._home, self._temporary):
            folder.mkdir()
            if _user():
                shutil.chown(folder, ACCOUNT)
        mariadb_server.make_data(found[1], self._home / "data", _user())

    def command(self, group: list[Node]) -> list[str]:
        """Return the command that starts the server."""
        found = mariadb_server.programs()
        assert found is not None
        listen = f"tcp://127.0.0.1:{self.ports['group']}"
        return [
            *(found[0], "--no-defaults", *_user(), *_OPTIONS),
            f"--datadir={self._home / 'data'}",
            f"--socket={self._home / 'socket'}",
            f"--pid-file={self._home / 'pid'}",
            # A server that starts deletes the temporary tables of another one from a shared folder.
            f"--tmpdir={self._temporary}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--wsrep-provider={_provider()}",
            f"--wsrep-node-name=node{self.number}",
            "--wsrep-node-address=127.0.0.1",
            f"--wsrep-node-incoming-address=127.0.0.1:{self.port}",
            f"--wsrep-sst-receive-address=127.0.0.1:{self.ports['sst']}",
            "--wsrep-cluster-address=gcomm://"
            + ",".join(f"127.0.0.1:{node.ports['group']}" for node in group),
            f"--wsrep-provider-options=gmcast.listen_addr={listen};"
            f"base_port={self.ports['group']};ist.recv_addr=127.0.0.1:{self.ports['ist']};"
            f"{_PROVIDER_OPTIONS}",
        ]

    def start(self, command: list[str]) -> None:
        """Start the server, which is not ready then; see `Cluster.wait`."""
        self._keeper, self._pipe = mariadb_server.start_kept(self._home, command, self.log)

    def position(self, command: list[str]) -> str:
        """Return the last change that a server has which is down, as its operator asks for it."""
        command = [*command, "--wsrep-recover", "--skip-networking"]
        ask = partial(
            subprocess.run,
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_JOIN_SECONDS,
        )
        try:
            done = ask()
        except subprocess.TimeoutExpired:
            # MariaDB's recovery after a kill has hung once; an operator would ask again.
            done = ask()
        found = re.findall(r"Recovered position:? (\S+)", done.stderr)
        return found[-1] if found else _NO_POSITION

    def kill(self) -> None:
        """Kill the server, as a machine dies."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self._home / "pid").read_text()), signal.SIGKILL)
        assert self._keeper is not None
        assert self._pipe is not None
        # The keeper sees that the server has ended, and leaves its data.
        self._keeper.wait(_STOP_SECONDS)
        os.close(self._pipe)
        self._keeper = self._pipe = None
        with suppress(FileNotFoundError):
            (self._home / "pid").unlink()

    def freeze(self) -> None:
        """Stop the server, as a machine that answers to nobody for a while."""
        os.kill(int((self._home / "pid").read_text()), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(int((self._home / "pid").read_text()), signal.SIGCONT)

    def close(self) -> None:
        """End the server, and remove its data."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self._keeper is not None:
            self._keeper.wait(_STOP_SECONDS)

    @property
    def has_ended(self) -> bool:
        """Whether the server is down."""
        return self._keeper is None or self._keeper.poll() is not None

    def query(self, sql: str, database: str = "", **options: str) -> list[tuple[Any, ...]]:
        """Run one statement in a session of its own, and return its rows."""
        link = _connect(self.port, database, **options)
        try:
            cursor = link.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall())
        finally:
            link.close()

    def status(self, name: str) -> str:
        """Return a status variable of Galera."""
        rows = self.query(f"SHOW GLOBAL STATUS LIKE 'wsrep_{name}'")
        return str(rows[0][1]) if rows else ""

    def is_synced(self) -> bool:
        """Whether it has all data, and takes statements."""
        try:
            return self.status("local_state_comment") == "Synced" and self.status("ready") == "ON"
        except _errors():
            return False


class Cluster:
    """Three nodes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        taken = iter(_free_ports(NODES * 4))
        names = ("sql", "group", "ist", "sst")
        self.nodes = [
            Node(number, home, {name: next(taken) for name in names})
            for number in range(1, NODES + 1)
        ]

    def start(self) -> None:
        """Start the first node, then those that get a copy of it."""
        for node in self.nodes:
            node.create()
        first, *others = self.nodes
        first.start([*first.command(self.nodes), "--wsrep-new-cluster"])
        self.wait(first)
        for node in others:
            node.start(node.command(self.nodes))
            self.wait(node)

    def wait(self, node: Node) -> None:
        """Wait until a node takes statements."""
        _until(lambda: node.has_ended or node.is_synced(), f"node {node.number} joins", node)
        if node.has_ended:
            raise RuntimeError(f"node {node.number} has ended:\n{node.log.read_text()[-3000:]}")

    def wait_until_equal(self) -> None:
        """Wait until every node has what was committed on any of them."""
        for node in self.nodes:
            if not node.has_ended:
                # It reads nothing before it has what the group has decided by now.
                node.query("SELECT 1", init_command="SET wsrep_sync_wait = 1")

    def rejoin(self, node: Node, *, by_copy: bool = False) -> None:
        """Start a node that was killed; it is not ready then.

        By the changes that it has missed, or by a copy of another node.
        """
        command = node.command(self.nodes)
        position = _NO_POSITION if by_copy else node.position(command)
        if position == _NO_POSITION:
            node.start(command)
        else:
            node.start([*command, f"--wsrep-start-position={position}"])

    def settings(self, node: Node, name: str, *, others: bool = False) -> dict[str, Any]:
        """Return Django's settings for a database of a node.

        `others`: with the other nodes as the next hosts, in their order.
        """
        # It starts the servers of the run, and a look at what is installed needs none.
        from tests.databases import mariadb_settings

        found = mariadb_settings("127.0.0.1", name) | {"PORT": str(node.port)}
        if others:
            start = self.nodes.index(node)
            hosts = [*self.nodes[start:], *self.nodes[:start]]
            found |= {"HOST": ",".join(f"127.0.0.1:{each.port}" for each in hosts), "PORT": ""}
        return found

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and end it."""
    home = Path(tempfile.mkdtemp(prefix="ojs-galera-", dir=_memory()))
    home.chmod(0o755)  # The account of the nodes comes through.
    made = Cluster(home)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(home, ignore_errors=True)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _user() -> list[str]:
    return [f"--user={ACCOUNT}"] if os.geteuid() == 0 else []


def _free_ports(number: int) -> list[int]:
    opened = []
    for _ in range(number):
        each = socket.socket()
        each.bind(("127.0.0.1", 0))
        opened.append(each)
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()
    return ports


def _until(condition: Callable[[], bool], what: str, node: Node) -> None:
    end = time.monotonic() + _JOIN_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not in time:\n{node.log.read_text()[-3000:]}")
        time.sleep(_POLL_SECONDS)


def _connect(port: int, database: str, **options: str) -> Any:
    # The driver is there where tests run on MariaDB.
    import MySQLdb

    return MySQLdb.connect(
        host="127.0.0.1",
        port=port,
        user="root",
        connect_timeout=4,
        autocommit=True,
        database=database,
        **options,
    )


def _errors() -> tuple[type[Exception], ...]:
    import MySQLdb

    return (MySQLdb.Error,)


if __name__ == "__main__":
    # `make faults` asks whether its storms can run here.
    if why := missing():
        sys.exit(f"Galera is left out: {why}")
