"""What extensions that are no longer installed have left behind in the tables of the core.

The number of an extension is its bit in `Queue.rules` and `Job.marks`, and gives its values of
`Job.hold`. Nothing handles the bits and values of a number that no extension has, nor a rule of an
extension without rules, nor a job held for an extension that holds none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial, reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, F, QuerySet

from django_ojs.hooks import MOST_NUMBERS, missing_rules, registry
from django_ojs.models import Job, Queue
from django_ojs.spec.hold import FREE, held_by, numbers_of, open_to, owner_of
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database, holds, schema
from django_ojs.storage.dialects.rows import Named
from django_ojs.storage.figures import known_queues

#: Jobs that one transaction changes.
BATCH: Final = 1000


def objects() -> list[Named]:
    """Return the `ojs_` objects of the database that neither core nor extensions create."""
    connection = database.connection()
    known = schema.created(schema.all_statements(database.dialect()))
    indexes = {index.name for index in Job._meta.indexes}
    present = set(database.dialect().read(connection, Named))
    return sorted(each for each in present - known if each.name not in indexes)


def queues() -> dict[int, list[str]]:
    """Return, by number, the queues in which a rule that no extension applies lets no job start."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, rules in Queue.primary.exclude(rules=0).order_by("name").values_list("name", "rules"):
        for number in numbers_of(missing_rules(rules)):
            found[number].append(name)
    return dict(sorted(found.items()))


def marked() -> dict[int, int]:
    """Return, by number, how many unfinished jobs have the mark of a missing extension."""
    found: Counter[int] = Counter()
    for state in sorted(set(State) - TERMINAL):
        # One state is read at a time, because each has its own index.
        jobs = _marked(Job.primary.filter(state=state)).values_list("unowned")
        for marks, number_of_jobs in jobs.annotate(Count("pk")):
            found.update(dict.fromkeys(numbers_of(marks), number_of_jobs))
    return dict(sorted(found.items()))


def held() -> dict[int, list[str]]:
    """Return, by number, the queues with available jobs that no installed extension would open."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for queue in known_queues.by_name().names:
        for number in sorted(set(map(owner_of, {*holds.values_in(queue)} - holds.owned()))):
            found[number].append(queue)
    return dict(sorted(found.items()))


def drop() -> None:
    """Drop what `objects` returns."""
    connection = database.connection()
    with connection.cursor() as cursor:
        for statement in schema.drop_statements(database.dialect(), objects()):
            cursor.execute(statement)


def take_out(number: int) -> None:
    """Remove what an extension has in the tables of the core, when its migrations are undone.

    Its jobs run without it. A job that another extension holds stays held.
    """
    connection = database.connection()
    others = ((1 << MOST_NUMBERS) - 1) & ~(1 << number)
    (extension,) = (each for each in registry.extensions() if each.number == number)
    if extension.schema is not None:
        has = schema.created(schema.statements_of(extension, database.dialect()))
        present = has & set(database.dialect().read(connection, Named))
        with connection.cursor() as cursor:
            for statement in schema.drop_statements(database.dialect(), present):
                cursor.execute(statement)
    for model, column in ((Queue, "rules"), (Job, "marks")):
        with_bit = model.primary.annotate(bit=F(column).bitand(1 << number)).exclude(bit=0)
        with_bit.update(**{column: F(column).bitand(others)})
    kept = Job.primary.filter(hold__in=[open_to(number), held_by(number)])
    for some in _pages(
        kept.exclude(state__in=TERMINAL).order_by("pk").values_list("pk", flat=True)
    ):
        holds.give_on(number, some)
    kept.update(hold=FREE)  # This is for jobs that have ended.


def free_queues() -> None:
    """Take the rules that no extension applies from the queues, so that their jobs may start."""
    Queue.primary.exclude(rules=0).update(rules=F("rules").bitand(sum(registry.claim_rules)))


def free_jobs() -> None:
    """Open all jobs that have not ended, also those that become available later.

    Jobs that an installed extension holds stay held.
    """
    for state in sorted(set(State) - TERMINAL):
        jobs = Job.primary.filter(state=state).exclude(hold__in=holds.owned()).order_by("pk")
        for some in _pages(jobs.values_list("pk", flat=True)):
            database.in_write_transaction(partial(holds.release_unowned, some))


def unmark() -> None:
    """Take the marks of missing extensions from all jobs, also from those that have ended."""
    keys = _marked(Job.primary.order_by("pk")).values_list("pk", flat=True)
    for some in _pages(keys):
        jobs = Job.primary.filter(pk__in=some)
        database.in_write_transaction(partial(jobs.update, marks=F("marks").bitand(_owned())))


def _pages(keys: Any) -> Iterator[list[UUID]]:
    some = list(keys[:BATCH])
    while some:
        yield some
        some = list(keys.filter(pk__gt=some[-1])[:BATCH])


def _marked(jobs: "QuerySet[Job]") -> Any:
    unowned = F("marks").bitand(_unowned())
    return jobs.annotate(unowned=unowned).exclude(unowned=0)


def _owned() -> int:
    return reduce(or_, (1 << number for number in registry.numbers()), 0)


def _unowned() -> int:
    return ((1 << MOST_NUMBERS) - 1) & ~_owned()
