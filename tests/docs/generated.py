"""Write the pages of the reference that the code knows: `python -m tests.docs.generated`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from django_ojs.spec import other_queues
from tests.docs.pages import NONE, ROOT

FOLDER = ROOT / "docs/reference"

GENERATED = "This page is generated: `python -m tests.docs.generated` writes it."

ROUTES = f"""# HTTP routes

The routes of the [HTTP API](http-api.md), from the OpenAPI document. A route with `{NONE}` needs no
credentials; [Secure the API](../how-to/secure-the-api.md#scopes) explains the scopes.

{GENERATED}
"""

ERRORS = f"""# Error codes

The classes of `django_ojs.spec.errors`, with their codes over HTTP. A status of `{NONE}` means that
the error is never sent over HTTP. [Errors](errors.md) says which of them Python code can get.

{GENERATED}
"""

#: The entries of the catalogue that no code raises, and that have no class therefore.
NOT_RAISED = """
OJS-1008 schema_validation `args` do not conform to the schema that the job names
OJS-1012 REQUEST_TIMEOUT The server did not respond in time
OJS-1013 SERIALIZATION_ERROR A request could not be encoded, or a response could not be decoded
OJS-2003 REPLICATION_LAG A replica has not seen the write yet
OJS-3002 conflict The job has already completed
OJS-3003 conflict The job has already been cancelled
OJS-3005 handler_error The handler raised; the retry policy applies
OJS-3006 timeout The handler ran longer than the job's timeout; the retry policy applies
OJS-3007 HANDLER_PANIC The handler's process died; the retry policy applies
OJS-3008 NON_RETRYABLE_ERROR The error type is one of the policy's `non_retryable_errors`
OJS-3009 cancelled The job was cancelled while it ran
OJS-3010 NO_HANDLER_REGISTERED This worker has no handler for the job type
OJS-4001 CHAIN_STEP_FAILED A step failed, and the chain ends there
OJS-4002 GROUP_TIMEOUT The group did not finish in time
OJS-4005 BATCH_CALLBACK_FAILED The callback job of a batch failed; its retry policy applies
OJS-4006 WORKFLOW_CANCELLED The workflow was cancelled
OJS-5003 TENANT_ACCESS_DENIED The resource belongs to a tenant the caller has no access to
OJS-6002 CONCURRENCY_LIMITED Too many jobs of this kind run already
OJS-6003 BACKPRESSURE_APPLIED The server rejects requests to protect its database
OJS-7000 EXTENSION_NOT_SUPPORTED The request needs an extension that the manifest does not list
OJS-7001 CRON_SCHEDULE_CONFLICT Another schedule has this name
OJS-7003 MIDDLEWARE_ERROR A middleware raised
OJS-7004 MIDDLEWARE_TIMEOUT A middleware took too long
"""

COMING_FROM = f"""# Coming from another queue

What you type there, and what it is called here. `f` is a task, and `x` its argument. An unknown
option or attribute with one of these names is an error that says the same. [Move from another
queue](../how-to/move-from-another-queue.md) moves the jobs that wait. An enqueue here always
belongs to the transaction around it, so nothing stands for `on_commit`.

{GENERATED}
"""

#: What stands above the table of a queue.
ABOVE = {
    other_queues.CELERY: (
        "Its tasks [run here](../how-to/move-from-celery.md) with a change of imports, and "
        "[every option](celery.md) is listed.\n\n"
    ),
    other_queues.TASKS: (
        "`@task`, `enqueue`, `using` and `get_result` of `django.tasks` stay: [a setting]"
        "(../how-to/use-django-tasks.md) names the backend, and `@options(retry=…, timeout=…, "
        "unique=…)` stands above `@task`.\n\n"
    ),
}


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def routes() -> str:
    """Return the page of the routes: a table for each tag of the OpenAPI document."""
    from tests.http.operations import operations, tags

    page = ROUTES
    for tag in tags():
        rows = [
            [
                f"`{one.method} {one.path}`",
                one.content["summary"],
                one.scope or NONE,
                ", ".join(str(each) for each in one.responses if not one.is_error(each)),
            ]
            for one in operations()
            if one.content["tags"] == [tag]
        ]
        page += f"\n## {tag}\n\n" + table("| Route | What it does | Scope | Responses |", rows)
    return page


def error_codes() -> str:
    """Return the page of the errors: those of the catalogue, then the others."""
    from django_ojs.spec import errors
    from tests.spec import test_errors

    def rows(classes: Iterable[type[errors.OJSError]]) -> Iterable[list[str]]:
        for each in classes:
            yield [
                each.number or NONE,
                f"`{each.__name__}`",
                f"`{each.code}`",
                str(each.status or NONE),
                "yes" if each.retryable else "no",
                (each.__doc__ or "").partition("\n")[0].rstrip("."),
            ]

    head = "| Number | Class | Code | Status | Retryable | Meaning |"
    catalogue = list(test_errors.catalogue().values())
    not_raised = [
        [number, f"`{code}`", meaning]
        for number, code, meaning in (line.split(" ", 2) for line in NOT_RAISED.split("\n") if line)
    ]
    others = set(test_errors.classes()) - {errors.OJSError, *catalogue}
    return (
        f"{ERRORS}\n## Catalogue\n\n{table(head, rows(catalogue))}"
        "\n## Other classes\n\nThese share a number with an entry of the catalogue, or are specific"
        f" to django_ojs.\n\n{table(head, rows(sorted(others, key=lambda each: each.__name__)))}"
        "\n## Not raised\n\nThe specification has these too. No code of django_ojs raises them, so"
        f" they have no class.\n\n{table('| Number | Code | Meaning |', not_raised)}"
    )


def coming_from() -> str:
    """Return the page of the names: a table for each of the other queues."""
    page = COMING_FROM
    for queue in dict.fromkeys(row.queue for row in other_queues.ROWS):
        rows = [[row.there, row.here] for row in other_queues.ROWS if row.queue == queue]
        page += f"\n## {queue}\n\n{ABOVE.get(queue, '')}" + table(f"| {queue} | Here |", rows)
    return page


PAGES: dict[str, Callable[[], str]] = {
    "coming-from.md": coming_from,
    "error-codes.md": error_codes,
    "http-routes.md": routes,
}


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings_sqlite")
    django.setup()
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render())
