"""What extensions keep from some claims: the values of `Job.hold` in a queue (see `spec.hold`)."""

from typing import Final

from django_ojs.models import Queue
from django_ojs.spec.hold import FIRST_HELD, FREE, owner_of
from django_ojs.spec.states import State
from django_ojs.storage import database, queue_configs

# Each value is a step in the index of claims, however many jobs have it.
_IN_QUEUE: Final = (
    "SELECT min(j.hold) FROM ojs_job AS j "
    f"WHERE j.queue = %s AND j.state = '{State.AVAILABLE.value}'"
)
_VALUES: Final = (
    f"WITH RECURSIVE holds (hold) AS ({_IN_QUEUE} UNION ALL "
    f"SELECT ({_IN_QUEUE} AND j.hold > holds.hold) FROM holds WHERE hold IS NOT NULL) "
    "SELECT hold FROM holds WHERE hold IS NOT NULL"
)


def values_in(queue: str) -> list[int]:
    """Return the values that available jobs of a queue have, in order."""
    with database.connection().cursor() as cursor:
        cursor.execute(_VALUES, [queue, queue])
        return [hold for (hold,) in cursor.fetchall()]


@database.write_transaction
def learn_rules(queue: str) -> int:
    """Read the rules of all queues; return the bits of those that jobs of this one are open to.

    A claim has found such a job. It is noted in the row of the queue, so that the next claim knows
    it, unless another transaction has locked that: a claim waits for no lock. So an enqueue neither
    writes nor locks the row, and it does not matter whether its process knows the rule.
    """
    owners = {owner_of(hold) for hold in values_in(queue) if FREE < hold < FIRST_HELD}
    bits = sum(1 << owner for owner in owners)
    connection = database.connection()
    if database.dialect_of(connection).try_lock_subject(connection, f"rules of {queue}"):
        row = Queue.primary.filter(pk=queue)
        if row.select_for_update(skip_locked=True, no_key=True).first() or not row.exists():
            queue_configs.add_rules([queue], bits)
    queue_configs.refresh()
    return bits
