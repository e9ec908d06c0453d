"""`manage.py serve`: the site, a worker beside it, and a login for the admin."""

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from example_project.demo.workers import Workers
from example_project.shop.jobs import import_deliveries
from example_project.shop.models import Stock
from example_project.site_server import Site, stop_signal


class Command(BaseCommand):
    """Keep the shop up until Ctrl-C."""

    help = "Migrate, create the demo login, start a worker, and serve the shop on 127.0.0.1."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the port."""
        parser.add_argument("--port", type=int, default=8000, help="the port on 127.0.0.1")

    def handle(self, *, port: int, **options: Any) -> None:
        """Serve."""
        stop = stop_signal()
        site = Site(port)
        call_command("migrate", verbosity=0, interactive=False)
        if not Stock.objects.exists():
            import_deliveries.enqueue()
        username, password = create_login()
        with Workers(1, logs=settings.VAR_DIR / "logs"), site:
            self.stdout.write(f"Orders  {site.url}/")
            self.stdout.write(f"API     {site.url}/ojs/docs/")
            self.stdout.write(f"Admin   {site.url}/admin/  login {username}, password {password}")
            self.stdout.flush()
            site.serve_until(stop)


def create_login() -> tuple[str, str]:
    """Create the superuser `demo`, or give it a new password; return both."""
    user, _ = User.objects.get_or_create(username="demo")
    password = secrets.token_urlsafe(9)
    user.is_staff = user.is_superuser = True
    user.set_password(password)
    user.save()
    return user.username, password
