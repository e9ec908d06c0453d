"""The statements of the dialects: `sql/<database>/<name>.sql`, one statement a file.

Statements that several databases understand are in `sql/common`.

States come from the transition table only: `{before_<transition>}` is the condition on the old
state, `{after_<transition>}` the new state, and `{<state>}` one in which PUSH stores a job.
Placeholders in two braces, as `{{names}}`, are filled in when a statement is executed.
"""

import re
from pathlib import Path
from typing import Final

from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import State, Trigger, initial, sources
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.dialects.job_row import CLAIMED

_FOLDER: Final = Path(__file__).parent / "sql"
_SCHEMA: Final = Path(__file__).parents[2] / "migrations/sql"
_COMMENT: Final = re.compile(r"^ *--.*\n", re.MULTILINE)

#: Transitions by name: their trigger's, except for the second ones of FAIL and LAPSE.
_TRANSITIONS: Final = {
    "fetch": (Trigger.FETCH, State.ACTIVE),
    "ack": (Trigger.ACK, State.COMPLETED),
    "fail": (Trigger.FAIL, State.RETRYABLE),
    "last_fail": (Trigger.FAIL, State.DISCARDED),
    "timer": (Trigger.TIMER, State.AVAILABLE),
    "expire": (Trigger.EXPIRE, State.DISCARDED),
    "lapse": (Trigger.LAPSE, State.AVAILABLE),
    "last_lapse": (Trigger.LAPSE, State.DISCARDED),
    "reschedule": (Trigger.RESCHEDULE, State.SCHEDULED),
}


def schema_files(database: str, *names: str) -> tuple[Path, ...]:
    """Return files of `migrations/sql`."""
    return tuple(_SCHEMA / database / f"{name}.sql" for name in names)


def load(folder: str | Path, name: str, **values: str) -> str:
    """Return a statement, its placeholders filled in from the table and from `values`.

    `folder` is a folder of `sql`, or the path of one in an app. Comments are removed, because the
    text is sent with each execution.
    """
    text = (_FOLDER / folder / f"{name}.sql").read_text(encoding="utf-8")
    return _COMMENT.sub("", text).strip().format(**_PLACEHOLDERS, **values)


def load_all(folder: str | Path, **values: str) -> dict[str, str]:
    """Return the statements of a folder, and those of `common` that it lacks, by their names."""
    chosen = {path.stem: each for each in ("common", folder) for path in (_FOLDER / each).iterdir()}
    return {name: load(each, name, **values) for name, each in chosen.items()}


def _quoted(text: str) -> str:
    return f"'{text}'"


def before(trigger: Trigger, target: State) -> str:
    """Return what follows `state` in the condition on the jobs that a transition may change."""
    # One state is compared with `=`: so the planner sees that a partial index covers the condition.
    states = [_quoted(state.value) for state in sources(trigger, target)]
    return f"= {states[0]}" if len(states) == 1 else f"IN ({', '.join(states)})"


_PLACEHOLDERS: Final = {
    "all_queues": _quoted(ALL_QUEUES),
    "default_policy": _quoted(DEFAULT_POLICY),
    "claimed_columns": ", ".join(CLAIMED),
    "no_job": ", ".join(["NULL"] * len(CLAIMED)),
    **{
        state.value: _quoted(initial(state).value)
        for state in (State.AVAILABLE, State.PENDING, State.SCHEDULED)
    },
    # Whether the run counts as an attempt, and was the last attempt.
    "spent": "(%(spends)s AND attempt - returned >= max_attempts)",
    **{f"before_{name}": before(*transition) for name, transition in _TRANSITIONS.items()},
    **{f"after_{name}": _quoted(target.value) for name, (_, target) in _TRANSITIONS.items()},
}
