"""The environment of a run: producers, workers, and the folder they write to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import contenders, redis_server, starts
from tests.benchmarks.contenders.base import Contender, Work
from tests.benchmarks.processes import Children, wait_until
from tests.benchmarks.producer import Producer
from tests.benchmarks.results import Results
from tests.benchmarks.server import Server

#: A worker must have run its first job within this many seconds, and all of them.
FIRST_SECONDS = 40.0
ALL_SECONDS = 180.0


class Field:
    """Starts producers on first use, and ends all processes in `close`."""

    def __init__(self, server: Server, results: Results, *, peers: bool, prefix: str) -> None:
        self.server = server
        self.results = results
        self.folder = Path(tempfile.mkdtemp(prefix="ojs-bench-"))
        self.log = self.folder / "log"
        self.starts = self.folder / "starts"
        self._prefix = prefix
        self._producers: dict[str, Producer] = {}
        self._failed: set[str] = set()
        self._redis: redis_server.RedisServer | None = None
        self.peers = self._find_peers(contenders.peers()) if peers else []
        self._durable = self._find_peers(contenders.durable()[1:]) if peers else []
        if not peers:
            results.note("Peers: left out.")

    def participants(self) -> list[str]:
        """Return all names: django_ojs, the ceiling, the peers."""
        return [contenders.OURS, contenders.CEILING, *(peer.name for peer in self.peers)]

    def turns(self, round_: int, *more: str) -> list[str]:
        """Return all names for a round, each time with another one first."""
        names = [*self.participants(), *more]
        start = round_ % len(names)
        return names[start:] + names[:start]

    def durable(self, round_: int) -> list[str]:
        """Return all that run durable steps for a round, each time with another one first."""
        names = [contenders.OURS, *(peer.name for peer in self._durable)]
        start = round_ % len(names)
        return names[start:] + names[:start]

    def producer(self, name: str) -> Producer:
        """Return the contender's producer, with its database ready."""
        if name not in self._producers:
            contender = contenders.by_name(name)
            # The ceiling's rows are copies of django_ojs's, in a database of their own.
            database = self.server.create(self.database_name(name))
            producer = Producer(contender, database, self.log)
            self._producers[name] = producer
            producer.do("setup")
        return self._producers[name]

    def database_name(self, name: str) -> str:
        """Return the name of a database of this run."""
        return self._prefix + "".join(c if c.isalnum() else "_" for c in name.lower())

    def pending(self, producer: Producer) -> int:
        """Return how many of a contender's jobs have not ended."""
        return producer.contender.pending(lambda text: self.server.run(producer.database, text))

    @contextmanager
    def worker(
        self, producer: Producer, work: Work, *, is_continued: bool = False
    ) -> Iterator[Children]:
        """Run a contender's worker, with an empty file of starts, or that of the last one."""
        if not is_continued:
            self.starts.unlink(missing_ok=True)
        contender = producer.contender
        environment = {
            **producer.environment,
            starts.VARIABLE: str(self.starts),
            **contender.environment(work),
        }
        children = Children(contender.commands(work), environment, self.log)
        try:
            yield children
        finally:
            children.stop()

    @contextmanager
    def ready_worker(self, producer: Producer, work: Work) -> Iterator[Children]:
        """Run a worker that has shown that it works, and has nothing to do."""
        producer.do("reset")
        with self.worker(producer, work) as children:
            producer.do("trickle", first=0, jobs=3, gap=0.01)
            wait_until(
                lambda: starts.count(self.starts) >= 3,
                seconds=FIRST_SECONDS,
                step=0.05,
                what="first jobs",
                watch=children,
            )
            yield children

    def attempt(self, measure: str, name: str, step: Callable[[], None]) -> bool:
        """Call a step. A peer that fails is noted and left out from then on; django_ojs is not."""
        if name in self._failed:
            return False
        try:
            step()
        except (RuntimeError, TimeoutError) as error:
            if name in (contenders.OURS, contenders.CEILING):
                raise
            self._failed.add(name)
            self.results.note(f"{name}: left out from {measure!r} on: {error}")
            return False
        return True

    def close(self) -> None:
        """End the producers, drop the databases, remove the folder."""
        for producer in self._producers.values():
            producer.close()
        if self._redis is not None:
            self._redis.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _find_peers(self, peers: Sequence[type[Contender]]) -> list[type[Contender]]:
        found = []
        for peer in peers:
            if missing := peer.missing():
                self.results.note(f"{peer.name}: not installed ({', '.join(missing)}).")
            elif peer.needs_redis and not redis_server.installed():
                self.results.note(f"{peer.name}: this machine has no redis-server.")
            else:
                found.append(peer)
                if peer.needs_redis:
                    self._redis = redis_server.RedisServer()
        return found
