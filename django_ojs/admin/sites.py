"""The pages of the operator, and their registration on an admin site.

A site gets the dotted path of each page, and makes its ModelAdmin when it is first used: when its
URLs are imported, or by `manage.py check`. A process that shows no page, such as a worker, imports
none of them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.db.models import Model
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from django_ojs.extension import Extension
from django_ojs.hooks import registry
from django_ojs.models import ApiKey, BulkOperation, DeadLetterJob, Job, Overview, Queue, Worker

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin

#: The core's pages, beside those of extensions (see `Extension.pages`).
CORE: Final[Mapping[type[Model], str]] = {
    Overview: "django_ojs.admin.overview.OverviewAdmin",
    Queue: "django_ojs.admin.queues.QueueAdmin",
    Job: "django_ojs.admin.jobs.JobAdmin",
    DeadLetterJob: "django_ojs.admin.dead_letters.DeadLetterAdmin",
    BulkOperation: "django_ojs.admin.bulk_operations.BulkOperationAdmin",
    Worker: "django_ojs.admin.workers.WorkerAdmin",
    ApiKey: "django_ojs.admin.api_keys.ApiKeyAdmin",
}


class _Page(SimpleLazyObject):  # type: ignore[type-arg]  # Django's class is not generic
    """The ModelAdmin of a model, which is imported and made when it is first used."""


def register(site: admin.AdminSite = admin.site, base: type[_Admin] = admin.ModelAdmin) -> None:
    """Register the operator's pages on an admin site; a second call replaces the first.

    `base` is the ModelAdmin of a theme, such as Unfold's. A page that the project has registered
    stays.
    """

    def add(pages: Mapping[type[Model], str]) -> None:
        for model, path in pages.items():
            if site.is_registered(model):
                registered: Any = site.get_model_admin(model)
                if type(registered) is not _Page:
                    continue
                site.unregister(model)
            site.register(model, _page_at(path, base))

    def add_of(extension: Extension) -> None:
        add(extension.pages())

    add(CORE)
    registry.for_each(add_of)


def _page_at(path: str, base: type[_Admin]) -> Any:
    """Return a function that makes the page of a model, to be registered in place of a class."""

    def made(model: type[Model], site: admin.AdminSite) -> _Admin:
        # Some of the classes are mixins, for a theme's ModelAdmin.
        page: _Admin = type(f"{model.__name__}Admin", (import_string(path), base), {})(model, site)
        return page

    return lambda model, site: _Page(lambda: made(model, site))
