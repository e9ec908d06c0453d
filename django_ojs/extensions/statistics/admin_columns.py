"""The column of the last hour in the list of queues."""

from collections.abc import Sequence
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.formatting import number
from django_ojs.admin.panels import AdminColumn
from django_ojs.extensions.statistics.admin_charts import Chart, sparkline
from django_ojs.models import Queue
from django_ojs.reports.queue_overview import OverviewRow


def _sparklines(rows: Sequence[OverviewRow]) -> dict[str, Chart]:
    return {row.name: _sparkline(row.flow.went[:-1]) for row in rows if row.is_flow_known}


def _sparkline(went: Sequence[float]) -> Chart:
    title = _("Out in the last hour: %(total)s in total, at most %(most)s per minute")
    figures = {"total": number(sum(went)), "most": number(max((*went, 0)))}
    return sparkline(title % figures, went)


LAST_HOUR: Final = AdminColumn(
    model=Queue,
    title=gettext_lazy("Last hour"),
    cells=_sparklines,
    template="django_ojs/admin/sparkline.html",
    is_wide_only=True,
)
