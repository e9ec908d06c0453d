"""Writers on all three nodes of a Galera cluster: what one node has locked, another does not see.

By hand, as no CI has MariaDB: docs/explanation/testing.md has the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from django_ojs.models import Job
from django_ojs.operations import fetch, queues
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database
from tests import galera_cluster
from tests.factories import push
from tests.faults.conftest import FULL
from tests.faults.galera_site import empty, migrated_cluster, on
from tests.galera_cluster import Cluster

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(galera_cluster.missing()), reason=str(galera_cluster.missing())),
]

JOBS = 3_000 if FULL else 300
ONCE = UniquePolicy(period=timedelta(hours=1), on_conflict="ignore")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with migrated_cluster() as made:
        yield made


@pytest.fixture
def galera(nodes: Cluster, transactional_db: None) -> Iterator[Cluster]:
    """Let the test's own statements run on the first node."""
    empty(nodes.nodes[0])
    with on(nodes.nodes[0]):
        yield nodes


def unique(node: int) -> None:
    push(queue="unique", type="test.once", unique=ONCE)


def bounded(node: int) -> None:
    push(queue="bounded")


def of_a_tenant(node: int) -> None:
    push(queue="of-a-tenant", meta={"tenant_id": "acme"})


def limited(node: int) -> None:
    # Of another queue on each node: it is not the same row.
    assert len(fetch.fetch([f"limited-{node}"], due=False)) == 1


def claimed(node: int) -> None:
    assert len(fetch.fetch(["claimed"], due=False)) == 1


def subject(node: int) -> None:
    assert database.dialect().try_lock_subject(connection, "a subject")


TENANT_BOUND = {"tenant_limits": {"max_queue_depth": 1}}
#: What is done on both nodes, and the state of the one job of which that is left.
ACTS = {
    unique: "available",
    bounded: "available",
    of_a_tenant: "available",
    limited: "active",
    claimed: "active",
    subject: None,
}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_of_two_nodes_that_do_what_one_may_do_the_first_to_commit_does_it(
    galera: Cluster, act: Callable[[int], None]
) -> None:
    queues.configure("bounded", {"backpressure": {"max_depth": 1}})
    queues.configure("of-a-tenant", TENANT_BOUND)
    jobs = [push(queue=f"limited-{n}", rate_limit={"key": "a", "concurrency": 1}) for n in (0, 1)]
    jobs.append(push(queue="claimed"))
    galera.wait_until_equal()
    with pytest.raises(OperationalError) as caught, transaction.atomic():
        act(0)
        with on(galera.nodes[1]), transaction.atomic():
            act(1)
    assert caught.value.args[0] == 1213
    assert database.dialect().is_contention_error(caught.value)
    new = Job.primary.exclude(pk__in=[job.pk for job in jobs])
    states = [*new.values_list("state", flat=True)]
    states += Job.primary.filter(state="active").values_list("state", flat=True)
    assert states == [state for state in [ACTS[act]] if state]
