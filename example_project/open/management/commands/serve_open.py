"""`manage.py serve_open`: an open OJS server for authors of clients and workers."""

import os
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_ojs.worker.job_log import JobLog
from django_ojs.worker.maintenance import MaintenanceThread
from example_project.open import middleware
from example_project.shop.management.commands.serve import create_login
from example_project.site_server import Site, stop_signal


class Command(BaseCommand):
    """Serve until SIGINT or SIGTERM."""

    help = (
        "Migrate, and serve the OJS API on 127.0.0.1 without authentication. Maintenance runs "
        "(promotion, retries, timeouts, expiry), and no job is run: that is for your worker."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the port."""
        parser.add_argument("--port", type=int, default=8080, help="the port on 127.0.0.1")

    def handle(self, *, port: int, **options: Any) -> None:
        """Serve."""
        try:
            middleware.check()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        stop = stop_signal()
        site = Site(port)
        call_command("migrate", verbosity=0, interactive=False)
        username, password = create_login()
        maintenance = MaintenanceThread(f"serve-open-{os.getpid()}", JobLog())
        try:
            with site:
                self.stdout.write(f"OJS     {site.url}/ojs/v1 (without authentication)")
                self.stdout.write(f"Reset   POST {site.url}/ojs/v1/admin/reset")
                self.stdout.write(
                    f"Admin   {site.url}/admin/  login {username}, password {password}"
                )
                self.stdout.flush()
                site.serve_until(stop)
        finally:
            maintenance.close()
