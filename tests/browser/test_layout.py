"""The pages look like those of Django's own admin, of the version that is installed."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.operations import queues
from tests.admin.users import at
from tests.factories import push
from tests.model_factories import ApiKeyFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ADMIN = "/admin/django_ojs/"

#: The elements around the content, and how what both pages have is drawn.
FRAME = """() => {
    const styles = {
        "#header": ["height", "background-color"],
        ".breadcrumbs": ["display", "height", "background-color", "color", "font-size"],
        ".breadcrumbs a": ["color", "text-decoration-line"],
        "#content": ["padding", "width"],
        "#content h1": ["font-size", "font-weight", "color", "margin"],
        "#nav-sidebar": ["width", "display"],
    };
    const frame = [];
    for (let at = document.querySelector("#content"); at; at = at.parentElement) {
        const around = [at.previousElementSibling, at.nextElementSibling]
            .filter(each => each && !each.matches("script, .messagelist"))
            .map(each => each.tagName + "#" + each.id);
        frame.push([at.tagName, at.id, around]);
    }
    const drawn = {};
    for (const [name, properties] of Object.entries(styles)) {
        const style = getComputedStyle(document.querySelector(name));
        drawn[name] = properties.map(each => style.getPropertyValue(each));
    }
    return [frame, drawn];
}"""

#: The distance of the button *Add* to the right edge of the content, and its height.
ADD = """() => {
    const box = name => document.querySelector(name).getBoundingClientRect();
    const [button, content] = [".object-tools .addlink", "#content"].map(box);
    return [content.right - button.right, button.height];
}"""

UNDERLINED = """() => [...document.querySelectorAll("a.ojs-button, .ojs-navigation a")]
    .filter(each => getComputedStyle(each).textDecorationLine !== "none").length"""


def test_a_page_has_the_frame_of_djangos_own(page: Any) -> None:
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    page.goto("/admin/auth/group/add/")
    django = page.evaluate(FRAME)
    for address in ("queue/", "queue/email/change/", "job/", "apikey/add/", "apikey/"):
        page.goto(at(address))
        assert page.evaluate(FRAME) == django, address
        assert page.evaluate(UNDERLINED) == 0, address


def test_the_button_of_a_list_is_where_django_has_it(page: Any) -> None:
    ApiKeyFactory()
    page.goto("/admin/auth/group/")
    django = page.evaluate(ADD)
    page.goto(f"{ADMIN}apikey/")
    assert page.evaluate(ADD) == django
    navigation = page.locator(".ojs-navigation").bounding_box()
    button = page.locator(".object-tools .addlink").bounding_box()
    assert navigation["y"] + navigation["height"] <= button["y"]
    # The navigation has the whole width.
    content = page.locator("#content").bounding_box()
    assert navigation["width"] > content["width"] - 100


def test_the_confirmation_of_a_queue_with_a_long_name_is_no_wider_than_the_window(
    page: Any,
) -> None:
    queue = "q" * 255
    push(queue=queue)
    page.goto(f"{ADMIN}queue/action/purge/?key={queue}")
    assert f"Type {queue} to confirm" in page.locator(".ojs-confirm").inner_text()
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) == 0
