"""A page that is opened changes nothing: the database rejects whatever writes."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.admin.test_permission_matrix import address_of, addresses, things  # noqa: F401
from tests.admin.users import root
from tests.cases import named
from tests.http.test_reads import make_queues
from tests.reading import read_only

pytestmark = pytest.mark.django_db

#: It keeps since when something has been wrong.
OVERVIEW = "/admin/django_ojs/overview/"


@pytest.mark.both
def test_no_page_writes(things: dict[str, str]) -> None:  # noqa: F811  # the fixture
    make_queues()
    client = root()
    pages = [address_of(model, pattern, things) for model, pattern in addresses()]
    pages += [f"/admin/django_ojs/queue/{name}/change/" for name in ("other", "again", "running")]
    pages += [reverse("admin:django_ojs_queue_action", args=["pause"]) + "?key=other"]
    for address in pages:
        is_overview = address == OVERVIEW
        with named(address), read_only(keeps_incidents=is_overview) as rejected:
            # Some pages do not exist here, and those of Django that change something are closed.
            assert client.get(address).status_code in (200, 302, 403, 404)
            assert rejected == []
