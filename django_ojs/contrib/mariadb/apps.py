"""The app of MariaDB: `INSTALLED_APPS = ["django_ojs", "django_ojs.contrib.mariadb"]`."""

from collections.abc import Mapping
from typing import ClassVar

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class MariaDBConfig(AppConfig):
    """Jobs in MariaDB."""

    name = "django_ojs.contrib.mariadb"
    label = "ojs_mariadb"
    verbose_name = "Background jobs in MariaDB"

    #: Django gives MariaDB the vendor "mysql" too. MySQL itself is not supported.
    ojs_dialects: ClassVar[Mapping[str, str]] = {
        "mysql": "django_ojs.contrib.mariadb.dialect.MariaDB"
    }

    def ready(self) -> None:
        """Give each new connection its wrappers, and the expressions of django_ojs their SQL."""
        from django_ojs.contrib.mariadb import (
            broken_triggers,
            expressions,
            message_size,
            open_transactions,
        )

        expressions.install()
        for each in (broken_triggers, message_size, open_transactions):
            connection_created.connect(each.install, dispatch_uid=each.__name__)
