"""Whether the database takes writes now, found within a second."""

import threading
import time
from typing import Final

from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.models import Job
from django_ojs.storage import database
from django_ojs.storage.connection_watch import ConnectionWatch

#: Seconds after which the database counts as not ready.
ANSWER_TIMEOUT: Final = 0.8

#: Seconds without an answer after which the connection is ended, and another one is made.
GIVE_UP_AFTER: Final = 5.0

#: Seconds without a reply after which the server is asked whether it still executes a statement.
WAIT_TIMEOUT: Final = 15.0


def is_ready(link: BaseDatabaseWrapper) -> bool:
    """Whether a connection may write, and the table of jobs is migrated. Raises Error."""
    columns = ", ".join(str(field.column) for field in Job._meta.concrete_fields)
    with link.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {Job._meta.db_table} WHERE false")
    return database.dialect_of(link).can_write(link, commits=True)


class Probe:
    """Asks whether the database takes writes, in a thread and one question at a time.

    Requests that come during a question share its answer. If the server is frozen, only the thread
    waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._question = _Question()
        self._question.over.set()
        self._watch = ConnectionWatch(WAIT_TIMEOUT)

    def is_ready(self) -> bool:
        """Return the answer, or False if none comes in time."""
        with self._lock:
            if self._question.over.is_set():
                self._question = _Question()
                threading.Thread(
                    target=self._ask, args=(self._question,), name="ojs-readiness", daemon=True
                ).start()
            question = self._question
        waited = time.monotonic() - question.began
        if waited >= GIVE_UP_AFTER and question.link is not None:
            database.end(question.link)
        return question.answered.wait(max(0.0, ANSWER_TIMEOUT - waited)) and question.answer

    def _ask(self, question: "_Question") -> None:
        try:
            # The check has a connection of its own, whose attempts to connect are limited in time.
            link = question.link = database.unpooled(database.alias())
            options = {**database.client_options(link.alias), **link.settings_dict["OPTIONS"]}
            link.settings_dict = {**link.settings_dict, "OPTIONS": options}
            try:
                question.answer = is_ready(link)
            finally:
                link.close()
        except Error:
            pass  # It is not ready. The reason does not concern the caller.
        finally:
            question.answered.set()
            try:
                if question.answer:
                    # This ends the waits of requests for a server that has gone.
                    self._watch.look()
            finally:
                question.over.set()


class _Question:
    def __init__(self) -> None:
        self.began = time.monotonic()
        self.link: BaseDatabaseWrapper | None = None
        self.answer = False
        #: `answered` is set when the answer is there, and `over` when the thread is done.
        self.answered, self.over = threading.Event(), threading.Event()
