"""What the figures are held against, and how each is to be read."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks import contenders
from tests.benchmarks.contenders.bare import CountedSQL
from tests.benchmarks.measures import (
    admin,
    bounds,
    cron,
    drain,
    enqueue,
    events,
    failures,
    figures,
    http,
    idle,
    limits,
    maintenance,
    names,
    poison,
    steps,
    tables,
    workflows,
)
from tests.benchmarks.results import Results

OURS, CEILING = contenders.OURS, contenders.CEILING


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A bound on a figure, or on its ratio to another one's of the same round."""

    measure: str
    about: str = OURS
    #: With neither of these the figure itself is meant.
    against: str | None = None
    against_measure: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    #: What `against_measure` is, in words.
    beside: str = ""
    #: What limits it, with the figure that shows it; printed where it is missed.
    limit: str = ""

    def value(self, results: Results) -> float | None:
        """Return what was measured, or None where it was not."""
        if self.against is None and self.against_measure is None:
            summary = results.summary(self.measure, self.about)
        else:
            summary = results.ratio(
                self.measure, self.about, self.against or self.about, self.against_measure
            )
        return None if summary is None else summary.median

    def met(self, value: float) -> bool:
        """Whether a value satisfies it."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most

    @property
    def wanted(self) -> str:
        """The bound in words."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}"


_PEERS = {
    "pgqueuer": "pgqueuer",
    "procrastinate": "procrastinate",
    "celery": "Celery + Redis",
    "tasks": "django-tasks-db",
    "q2": "django-q2",
    "ox": "django-ox",
}


# What limits the targets that are missed on two cores of 2026; docs/explanation/speed.md has the
# measurements.
_ENQUEUE = (
    "server: of 338 µs the triggers that count take 35 and Python 16 to 23, the rest is SQL's"
)
_DRAIN = "interpreter: a job takes 34 µs of the worker; bare SQL does nothing for a job but its SQL"
_TWO = "two cores: a job takes 34 µs of a worker and 24 of PostgreSQL, 34,500 jobs/s for two cores"
_PICKUP = (
    "commit: the claim takes 0.52 ms, as bare SQL's does; Celery's comes from Redis without one"
)
_PUSH = (
    "interpreter: a view that only authenticates serves 1,392 requests/s where this serves 1,328"
)
_MANY = "interpreter and server: 99 more jobs take 0.9 ms of Python and 0.8 of PostgreSQL"
_MEMORY = "interpreter: Django and psycopg take 44 MB; supervisor and process are two interpreters"
_BURST = "interpreter: each of the 10,000 jobs takes 0.12 ms of Python and 0.06 of PostgreSQL"
_GROUP = "server: what stores the end of a job stores the end of its step, too"
_LIMITS = "server: the claim also reads what has room and stores what starts, 0.8 ms more"
_EVENTS = "commit: the row of an event has 690 bytes of WAL, and that of its job 400"
_FAILURE = "interpreter: a failure takes 232 µs, a quarter of them for the log with its traceback"
_BOUND = "server: what counts against the bound takes about a tenth of a batch of 100"
_MACHINE = "machine: the figure is absolute; see the rows beside it"


def _faster(measure: str, limit: str = "", **factors: float) -> list[Target]:
    return [
        Target(measure=measure, against=_PEERS[name], at_least=factor, limit=limit)
        for name, factor in factors.items()
    ]


def targets(results: Results) -> list[Target]:
    """Return all targets; those of the big tables depend on what sizes there are."""
    every = [
        Target(measure=enqueue.SINGLE, against=CEILING, at_least=0.88, limit=_ENQUEUE),
        *_faster(enqueue.SINGLE, _ENQUEUE, pgqueuer=0.93),
        Target(
            measure=enqueue.UNIQUE,
            against_measure=enqueue.SINGLE,
            at_least=1 / 1.8,
            beside="of a plain one",
        ),
        Target(measure=enqueue.TRANSACTION, against=CEILING, at_most=1.2, limit=_ENQUEUE),
        *[
            Target(measure=enqueue.TRANSACTION, against=_PEERS[name], at_most=1.0)
            for name in ("procrastinate", "tasks", "ox", "q2")
        ],
        Target(measure=enqueue.MANY, at_least=70_000, limit=_MACHINE),
        *_faster(enqueue.MANY, procrastinate=3.0, pgqueuer=1.0),
        Target(measure=drain.ONE, against=CEILING, at_least=0.8, limit=_DRAIN),
        *_faster(drain.ONE, _DRAIN, pgqueuer=1.25, procrastinate=5, tasks=5, ox=5, q2=5, celery=5),
        Target(
            measure=drain.ONE,
            about=drain.ASYNC,
            against=OURS,
            at_least=1.0,
            limit="interpreter: the event loop takes 40 µs a job",
        ),
        *_faster(drain.TWO, _TWO, pgqueuer=1.1),
        Target(
            measure=drain.TWO,
            against_measure=drain.ONE,
            at_least=1.5,
            beside="of one process",
            limit=_TWO,
        ),
        Target(measure=drain.NAPS, against=drain.THREADS, at_least=0.95, limit=_DRAIN),
        Target(measure=drain.MEMORY, at_most=60.0, limit=_MEMORY),
        *[
            Target(measure=measure, against=_PEERS["celery"], at_most=1.0, limit=_PICKUP)
            for measure in (idle.P50, idle.P95)
        ],
        # One poll interval, and the claim after it.
        Target(measure=idle.P99, about=idle.SILENT, at_most=510.0),
        Target(measure=idle.IDLE, at_most=0.4, limit=_MACHINE),
        Target(measure=http.PUSH, against=http.INSERT, at_least=0.85, limit=_PUSH),
        Target(measure=http.CYCLE, at_least=500, limit=_MACHINE),
        Target(measure=http.FETCH_ONE, at_most=2.2, limit=_MACHINE),
        Target(
            measure=http.PUSH_MANY,
            against_measure=http.PUSH_ONE,
            at_most=1.3,
            beside="of one job",
            limit=_MANY,
        ),
        Target(
            measure=http.FETCH_MANY,
            against_measure=http.FETCH_ONE,
            at_most=1.3,
            beside="of one job",
            limit=_MANY,
        ),
    ]
    every += [
        Target(measure=cron.LAG, at_most=1_000),
        Target(measure=cron.BURST, at_most=1_000, limit=_BURST),
        Target(
            measure=workflows.GROUP,
            against_measure=workflows.FREE,
            at_least=1 / 1.5,
            beside="of free jobs",
            limit=_GROUP,
        ),
        Target(
            measure=limits.LIMITED,
            against_measure=limits.PLAIN,
            at_most=2.0,
            beside="of one without",
            limit=_LIMITS,
        ),
        Target(
            measure=limits.FULL,
            against_measure=limits.PLAIN,
            at_most=3.0,
            beside="of one without",
        ),
        Target(
            measure=limits.KEYS,
            against_measure=limits.PLAIN,
            at_most=3.0,
            beside="of one without",
            limit=_LIMITS,
        ),
        Target(measure=maintenance.PROMOTION, at_least=20_000, limit=_MACHINE),
        Target(measure=maintenance.DELAY, at_most=1_000),
        Target(measure=maintenance.LAPSE, at_least=5_000, limit=_MACHINE),
        Target(
            measure=maintenance.PRUNING,
            against_measure=drain.ONE,
            at_least=2.0,
            beside="of the drain",
        ),
    ]
    every += [
        Target(
            measure=measure,
            about=events.RECORDED,
            against=events.LEFT_OUT,
            at_least=least,
            limit=_EVENTS,
        )
        for measure, least in ((events.ENQUEUE, 0.75), (events.BATCH, 0.5), (events.DRAIN, 0.7))
    ]
    every += [
        Target(
            measure=figures.FIGURES, about=figures.NOTED, against=figures.LEFT_OUT, at_least=0.9
        ),
        Target(
            measure=failures.WORKER_CPU,
            about=failures.RETRIED,
            against=failures.COMPLETED,
            at_most=3.0,
            limit=_FAILURE,
        ),
        Target(measure=poison.POISON, about=poison.POISONED, against=poison.PLAIN, at_least=0.5),
    ]
    every += [
        Target(measure=measure, about=name, at_most=most, limit=_MACHINE)
        for measure, most in (*names.READS.items(), *admin.LIMITS.items())
        for name in results.contenders(measure)
    ]
    every += _of_steps()
    every += _of_bounds(results)
    sizes = [name for name in results.contenders(tables.PUSH) if name != tables.EMPTY]
    for name in sizes:
        every += [
            Target(measure=operation, about=name, against=tables.EMPTY, at_most=1.25)
            for operation in (tables.PUSH, tables.FETCH, tables.PUSH_MANY, tables.FETCH_MANY)
        ]
        every += [
            Target(measure=count, about=name, at_most=1.0, limit=_MACHINE)
            for count in (tables.DEPTH, tables.COUNTS)
        ]
    return every


def _of_steps() -> list[Target]:
    others = [each.name for each in contenders.durable() if each.name != OURS]
    least = {steps.RATE[1]: 1.5, steps.RATE[10]: 1.2, steps.RATE[100]: 1.1, steps.TWO: 1.1}
    return [
        *(
            Target(measure=measure, against=other, at_least=factor)
            for measure, factor in least.items()
            for other in others
        ),
        Target(
            measure=steps.STARTS,
            against_measure=steps.ENQUEUES,
            at_least=0.9,
            beside="of a plain enqueue",
        ),
        *(
            Target(measure=measure, against="DBOS", at_most=1.0)
            for measure in (steps.P50, steps.P95)
        ),
        Target(measure=steps.RESUMED, at_most=2.0),
    ]


def _of_bounds(results: Results) -> list[Target]:
    names = [name for name in results.contenders(bounds.SINGLE) if name.startswith(bounds.BOUNDED)]
    empty = bounds.name_of(bounds.BOUNDED)
    return [
        Target(measure=measure, about=about, against=against, at_least=least, limit=_BOUND)
        for measure in (bounds.SINGLE, bounds.MANY)
        for about in names
        for against, least in (
            (about.replace(bounds.BOUNDED, bounds.UNBOUNDED), 0.90),
            *([(empty, 0.80)] if about != empty else []),
        )
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A block of the table. Ratios are the first row's to each other row's, or the reverse."""

    measure: str
    title: str
    unit: str
    #: The row that all others are divided by; without it, it is django_ojs that is divided.
    base: str | None = None


SECTIONS = (
    Section(measure=enqueue.SINGLE, title="Enqueue, a transaction each", unit="jobs/s"),
    Section(measure=enqueue.UNIQUE, title="Enqueue with a unique policy", unit="jobs/s"),
    Section(measure=enqueue.DUPLICATE, title="The same, and it exists", unit="jobs/s"),
    Section(measure=enqueue.TRANSACTION, title="Added to a caller's transaction", unit="ms"),
    Section(measure=enqueue.MANY, title="Enqueue in batches of 1,000", unit="jobs/s"),
    Section(measure=drain.ONE, title="Drain of no-op jobs, one process", unit="jobs/s"),
    Section(measure=drain.TWO, title="Drain of no-op jobs, two processes", unit="jobs/s"),
    Section(measure=drain.NAPS, title="Jobs of 5 ms, 10 slots", unit="jobs/s"),
    Section(measure=drain.WORKER_CPU, title="CPU of the worker, one process", unit="µs/job"),
    Section(measure=drain.SERVER_CPU, title="CPU of PostgreSQL, one process", unit="µs/job"),
    Section(measure=drain.MEMORY, title="Memory of the worker, one process", unit="MB"),
    Section(measure=idle.P50, title="Pickup by an idle worker, median", unit="ms"),
    Section(measure=idle.P95, title="Pickup by an idle worker, 95th percentile", unit="ms"),
    Section(measure=idle.P99, title="Pickup by an idle worker, 99th percentile", unit="ms"),
    Section(measure=idle.MOST, title="Pickup by an idle worker, longest", unit="ms"),
    Section(measure=idle.IDLE, title="An idle worker", unit="% of a core"),
    Section(measure=idle.IDLE_SERVER, title="PostgreSQL meanwhile", unit="% of a core"),
    Section(measure=http.PUSH, title="PUSH over HTTP, one server process", unit="requests/s"),
    Section(measure=http.PUSH_CPU, title="CPU of the server process, PUSH", unit="µs/request"),
    Section(measure=http.INFO, title="INFO over HTTP", unit="requests/s"),
    Section(measure=http.CYCLE, title="FETCH and ACK over HTTP", unit="jobs/s"),
    Section(measure=http.PUSH_ONE, title="PUSH of a batch of one job over HTTP", unit="ms"),
    Section(measure=http.PUSH_MANY, title="PUSH of a batch of 100 jobs over HTTP", unit="ms"),
    Section(measure=http.FETCH_ONE, title="FETCH of one job over HTTP", unit="ms"),
    Section(measure=http.FETCH_MANY, title="FETCH of 100 jobs over HTTP", unit="ms"),
    Section(measure=bounds.SINGLE, title="Enqueue into a queue less than half full", unit="jobs/s"),
    Section(measure=bounds.MANY, title="The same in batches of 100", unit="jobs/s"),
    Section(measure=workflows.FREE, title="Drain of 10,000 jobs", unit="jobs/s"),
    Section(measure=workflows.GROUP, title="The same, one group", unit="jobs/s"),
    Section(measure=workflows.CHAINS, title="The same, in chains of five", unit="jobs/s"),
    Section(measure=cron.LAG, title="Lag of cron jobs, 99th percentile", unit="ms"),
    Section(measure=cron.LAG_MOST, title="Lag of cron jobs, longest", unit="ms"),
    Section(measure=cron.BURST, title="The same, all due in one second", unit="ms"),
    Section(measure=limits.PLAIN, title="FETCH of ten jobs, queue without limits", unit="ms"),
    Section(measure=limits.LIMITED, title="The same, queue with limits", unit="ms"),
    Section(measure=limits.FULL, title="The same, after nine full queues", unit="ms"),
    Section(measure=limits.KEYS, title="The same, 9,990 of 10,000 keys full", unit="ms"),
    Section(measure=maintenance.PROMOTION, title="Promotion of a burst", unit="jobs/s"),
    Section(measure=maintenance.DELAY, title="Delay of another queue meanwhile", unit="ms"),
    Section(measure=maintenance.LAPSE, title="Lapsed leases taken back", unit="jobs/s"),
    Section(measure=maintenance.PRUNING, title="Pruning", unit="jobs/s"),
    *(
        Section(measure=measure, title=title, unit="jobs/s", base=events.LEFT_OUT)
        for measure, title in (
            (events.ENQUEUE, "Enqueue, every event recorded"),
            (events.BATCH, "Enqueue in batches of 500, every event recorded"),
            (events.DRAIN, "Claims of 20 jobs and their completions, every event recorded"),
        )
    ),
    Section(
        measure=figures.FIGURES,
        title="Enqueue with figures",
        unit="jobs/s",
        base=figures.LEFT_OUT,
    ),
    *(
        Section(measure=name, title=f"{name}, by number of queues", unit="ms", base=names.FEW)
        for name in names.READS
    ),
    *(
        Section(measure=name, title=f"Durable steps, runs of {steps_}", unit="steps/s")
        for steps_, name in steps.RATE.items()
    ),
    Section(measure=steps.TWO, title="Durable steps, runs of 100, two processes", unit="steps/s"),
    *(
        Section(
            measure=name,
            title=f"CPU of worker and PostgreSQL for a step, runs of {steps_}",
            unit="µs/step",
        )
        for steps_, name in steps.COST.items()
    ),
    *(
        Section(measure=measure, title=f"An idle worker: {title}", unit=unit, base=steps.label(0))
        for measure, title, unit in (
            (steps.IDLE, "its CPU, and that of PostgreSQL", "% of a core"),
            (steps.IDLE_MEMORY, "its memory", "MB"),
        )
    ),
    Section(measure=steps.STARTS, title="Starts of runs, a transaction each", unit="runs/s"),
    Section(measure=steps.P50, title="Signal to the line after the wait, median", unit="ms"),
    Section(
        measure=steps.P95, title="Signal to the line after the wait, 95th percentile", unit="ms"
    ),
    Section(measure=steps.RESUMED, title="From kill -9 until a fresh worker goes on", unit="s"),
    Section(
        measure=poison.POISON,
        title="Jobs of 5 ms beside one that kills its process",
        unit="jobs/s",
        base=poison.PLAIN,
    ),
    Section(
        measure=failures.RATE,
        title="Jobs that fail, one process",
        unit="jobs/s",
        base=failures.COMPLETED,
    ),
    Section(
        measure=failures.WORKER_CPU,
        title="CPU of the worker for a job that fails",
        unit="µs/job",
        base=failures.COMPLETED,
    ),
    Section(
        measure=failures.SERVER_CPU,
        title="CPU of PostgreSQL for a job that fails",
        unit="µs/job",
        base=failures.COMPLETED,
    ),
    *(
        Section(
            measure=name,
            title=f"{name.capitalize()} a backlog of maintenance",
            unit="ms",
            base=maintenance.IDLE,
        )
        for name in (maintenance.ENQUEUE, maintenance.CLAIM)
    ),
    *(
        Section(measure=name, title=f"{name} by table", unit="ms", base=tables.EMPTY)
        for name in tables.OPERATIONS
    ),
    Section(measure=tables.DEPTH, title="Depth of a queue, by table", unit="ms", base=tables.EMPTY),
    Section(measure=tables.COUNTS, title="Counts by state, by table", unit="ms", base=tables.EMPTY),
    Section(measure=admin.PAGE, title="Pages of the admin, by the largest table", unit="ms"),
    Section(measure=admin.SLOWEST, title="The slowest request of them", unit="ms"),
)

REMARKS = (
    f"{CEILING}: a copy of the jobs' table with its indexes and constraints; "
    f"{CountedSQL.name}: the table itself, whose triggers count.",
    f"A table {tables.FRESH[2:]} has room for small rows on most pages, so that new jobs lie one a "
    "page; in one that has been in use they lie side by side.",
    "A ratio is the median of the rounds' own ratios: django_ojs to the row, or, by table, the row "
    "to the empty one.",
)
