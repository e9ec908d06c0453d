"""What the shop enqueues with Django's own `@task`. The settings have the backend, `TASKS`.

Nothing here knows of django_ojs: a task of another package is like this one.
"""

from typing import TYPE_CHECKING

import django

from example_project.shop import mail
from example_project.shop.models import StockAlert

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def send_stock_alert(alert_id: int) -> None:
    """Write to a customer that a product has arrived. A message sent again replaces itself."""
    mail.send_stock_alert(StockAlert.objects.get(pk=alert_id))
