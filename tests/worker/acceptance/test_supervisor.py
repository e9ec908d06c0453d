"""The supervisor at the moments when a process has only just begun, or begins again and again."""

from __future__ import annotations

import os
import signal

import pytest

from django_ojs.models import Worker
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

# A supervisor whose children do something before they have signal handlers of their own.
PROGRAM = """
import os, signal, time
import django
django.setup()
from django_ojs.worker import supervisor
from django_ojs.worker.config import WorkerConfig

class Early(supervisor.WorkerProcess):
    def __init__(self, *args, **kwargs):
        parent = os.getppid()
        {early}
        super().__init__(*args, **kwargs)

supervisor.WorkerProcess = Early
supervisor.Supervisor(WorkerConfig()).run()
"""

# What it prints goes to a pipe that nothing reads, as after the crash of what collects the log.
UNREAD = """
import os, sys
import django
django.setup()
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.supervisor import Supervisor

reader, writer = os.pipe()
sys.stdout = open(writer, "w")
os.close(reader)
print("This is not written.")
Supervisor(WorkerConfig(processes=2, max_jobs=1)).run()
os._exit(0)  # Python would flush it, too.
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_to_a_child_that_has_only_just_begun_is_not_lost(
    start: Start, number: str
) -> None:
    early = f"print('begins', flush=True); os.kill(os.getpid(), signal.{number})"
    tree = start(program=("-c", PROGRAM.format(early=early)))
    # It ends, and so another one takes its place.
    eventually(lambda: tree.log.count("begins") > 1, "a second process has begun")
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    assert not Worker.objects.exists()


def test_a_child_whose_supervisor_dies_while_it_begins_ends_too(start: Start) -> None:
    program = PROGRAM.format(
        early="""os.kill(parent, signal.SIGKILL)
        while os.getppid() == parent:
            time.sleep(0.01)"""
    )
    assert start(program=("-c", program)).ends() == -signal.SIGKILL


@pytest.mark.usefixtures("new_interpreters")
def test_garbage_collections_of_a_child_leave_out_what_the_supervisor_has_loaded(
    start: Start,
) -> None:
    job = stored(handlers.collected.enqueue())
    tree = start()
    left_out, walked_through = becomes(job, "completed").result
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    # All of Django and the project on one side, a few requests and threads on the other.
    assert left_out > 2 * walked_through


def test_a_child_that_dies_as_soon_as_it_begins_is_not_replaced_in_a_hurry(start: Start) -> None:
    tree = start(program=("-c", PROGRAM.format(early="raise RuntimeError('no')")))
    tree.says("The worker process ended by an unexpected error.")
    eventually(lambda: tree.log.count("died: exit code 1") >= 3, "it has been tried three times")
    # Half a second, then one, then two: a loop without pauses would have made dozens by now.
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    assert tree.log.count("died") <= 4


def test_output_that_cannot_be_written_ends_neither_the_supervisor_nor_other_processes(
    start: Start,
) -> None:
    tree = start(program=("-c", UNREAD)).ready(2)
    before = set(tree.children())
    becomes(stored(handlers.note.enqueue()), "completed")
    eventually(lambda: not before <= set(tree.children()), "its process has ended")
    tree.ready(2)
    assert len(before.intersection(tree.children())) == 1
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    assert "died" not in tree.log
    assert "Traceback" not in tree.log


def test_the_processes_that_are_left_find_the_jobs(start: Start) -> None:
    # One is frozen, maybe in its claim, and one is killed.
    tree = start("--processes", "3", "--poll-interval", "0.2", ojs={"HEARTBEAT_INTERVAL": 60})
    eventually(lambda: Worker.objects.count() == 3, "three processes")
    frozen, killed = list(Worker.objects.order_by("id").values_list("pid", flat=True))[:2]
    os.kill(frozen, signal.SIGSTOP)
    try:
        for _ in range(5):
            becomes(stored(handlers.quick.enqueue(1)), "completed")
        os.kill(killed, signal.SIGKILL)
        for _ in range(5):
            becomes(stored(handlers.quick.enqueue(1)), "completed")
    finally:
        os.kill(frozen, signal.SIGCONT)
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
