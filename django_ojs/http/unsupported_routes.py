"""Documented routes that this server does not have: 422 `unsupported` (http-binding §16)."""

from collections.abc import Iterable
from typing import Any, Final, NoReturn

from django.http import HttpRequest
from django.urls import URLPattern, re_path

from django_ojs.extension import Extension
from django_ojs.http.views.base import OJSView, PublicView
from django_ojs.not_installed import PATHS, line_to_add
from django_ojs.spec.errors import UnsupportedFeature

# A dot does not match a line feed, which a path may contain.
_BELOW: Final = r"(?:/[\s\S]*)?"
_JOB: Final = r"jobs/[^/]+"
_QUEUE: Final = r"queues/[^/]+"

#: Paths below `ojs/v1/`, by the feature that they belong to.
_PATHS: Final = {
    "schemas": rf"schemas{_BELOW}|admin/schemas/[^/]+(?:/[^/]+)?",
    # The same events are sent as server-sent events.
    "websockets": r"ws",
    # Only the history of one job is served.
    "history_of_all_jobs": rf"history{_BELOW}",
    "debug": rf"debug{_BELOW}",
    "bulk": rf"jobs/bulk{_BELOW}|dead-letter/retry",
    "results": rf"jobs/results|{_JOB}/result(?:/stream)?",
    "queue_jobs": rf"{_QUEUE}/(?:jobs|priority-stats)",
    # Pools are a setting.
    "pools": r"admin/pools(?:/[^/]+)?",
    # The limits of tenants are in the configuration of a queue.
    "tenant_administration": r"admin/tenants(?:/[^/]+(?:/(?:limits|stats|jobs))?)?",
    "routing": r"admin/routing/[^/]+",
}


class Unsupported(PublicView):
    """422 for every method: what is missing is a feature of the server, not a resource."""

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise UnsupportedFeature instead of 405."""
        # Django passes on the group that matched, and no other.
        (feature,) = kwargs
        raise UnsupportedFeature(
            f"This server does not support {feature.replace('_', ' ')}.",
            details={"feature": feature},
            hint="The manifest lists the capabilities and extensions of this server.",
        )


_ANY: Final = "|".join(rf"(?P<{feature}>{pattern})" for feature, pattern in _PATHS.items())

#: It must come before the routes of jobs, which would take `bulk` for an id.
unsupported = re_path(rf"^ojs/v1/(?:{_ANY})\Z", Unsupported.as_view(), name="ojs-unsupported")


def not_installed(extension: str) -> UnsupportedFeature:
    """Return the error for a feature of an extension that is not installed."""
    return UnsupportedFeature(
        f"This server does not have the extension {extension}.",
        details={"feature": extension},
        hint=line_to_add(extension),
    )


class NotInstalled(OJSView):
    """422 for the paths of an extension that this site has not installed, with the line to add."""

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise UnsupportedFeature; `dispatch` has authenticated the caller before."""
        raise not_installed(kwargs["extension"])


def of_extensions(installed: Iterable[Extension]) -> list[URLPattern]:
    """Return the routes of the extensions of this package that are not installed."""
    missing = PATHS.keys() - {each.name for each in installed}
    return [
        re_path(rf"^ojs/v1/(?:{PATHS[name]})\Z", NotInstalled.as_view(), {"extension": name})
        for name in sorted(missing)
    ]
