"""Write docs/reference/http-routes.md from the OpenAPI document: `python -m tests.docs.routes`."""

from __future__ import annotations

import os

from tests.docs.pages import NONE, ROOT

PAGE = ROOT / "docs/reference/http-routes.md"

HEAD = f"""# HTTP routes

The routes of the [HTTP API](http-api.md), from the OpenAPI document. A route with `{NONE}` needs no
credentials; [Secure the API](../how-to/secure-the-api.md#scopes) explains the scopes.

This page is generated: `python -m tests.docs.routes` writes it.
"""


def render() -> str:
    """Return the page: a table for each tag of the document, a row for each operation."""
    from tests.http.operations import operations, tags

    parts = [HEAD]
    for tag in tags():
        parts.append(f"\n## {tag}\n")
        parts.append("| Route | What it does | Scope | Responses |")
        parts.append("|---|---|---|---|")
        for one in operations():
            if one.content["tags"] == [tag]:
                summary = one.content["summary"].replace("|", "\\|")
                statuses = ", ".join(str(each) for each in one.responses if not one.is_error(each))
                route = f"`{one.method} {one.path}`"
                parts.append(f"| {route} | {summary} | {one.scope or NONE} | {statuses} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings_sqlite")
    django.setup()
    PAGE.write_text(render())
