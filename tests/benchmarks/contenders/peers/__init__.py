"""What else a project could use, each driven as its own documentation has it.

Nothing of them is a dependency: whatever is not installed is left out.
"""

from __future__ import annotations

from tests.benchmarks.contenders.base import Contender, Durable
from tests.benchmarks.contenders.peers.absurd import Absurd, AbsurdOfEight
from tests.benchmarks.contenders.peers.celery import Celery
from tests.benchmarks.contenders.peers.dbos import DBOSTransact
from tests.benchmarks.contenders.peers.django_q2 import DjangoQ2
from tests.benchmarks.contenders.peers.django_tasks import DjangoOx, DjangoTasksDB
from tests.benchmarks.contenders.peers.pgqueuer import PgQueuer
from tests.benchmarks.contenders.peers.procrastinate import Procrastinate

PEERS: tuple[type[Contender], ...] = (
    PgQueuer,
    Procrastinate,
    DjangoTasksDB,
    DjangoOx,
    DjangoQ2,
    Celery,
)

#: What is for runs of durable steps only.
DURABLE: tuple[type[Durable], ...] = (DBOSTransact, Absurd, AbsurdOfEight)
