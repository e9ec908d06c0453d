"""Write the pages of the reference that the code knows: `python -m tests.docs.generated`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

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
    catalogue = list(errors.CATALOGUE.values())
    others = set(test_errors.classes()) - {errors.OJSError, *catalogue}
    return (
        f"{ERRORS}\n## Catalogue\n\n{table(head, rows(catalogue))}"
        "\n## Other classes\n\nThese share a number with an entry of the catalogue, or are specific"
        f" to django_ojs.\n\n{table(head, rows(sorted(others, key=lambda each: each.__name__)))}"
    )


PAGES: dict[str, Callable[[], str]] = {
    "error-codes.md": error_codes,
    "http-routes.md": routes,
}


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings_sqlite")
    django.setup()
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render())
