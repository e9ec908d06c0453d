"""The column of the last hour in the list of queues."""

from collections.abc import Sequence
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.panels import AdminColumn
from django_ojs.extensions.statistics.admin_charts import Chart, sparkline
from django_ojs.models import Queue
from django_ojs.reports.queue_overview import OverviewRow


def _sparklines(rows: Sequence[OverviewRow]) -> dict[str, Chart]:
    title = _("Out in the last hour")
    return {
        row.name: sparkline(
            title,
            row.flow.went[:-1],
            beside={"in": row.flow.came[:-1], "failed": row.flow.failed[:-1]},
        )
        for row in rows
        if row.is_flow_known
    }


LAST_HOUR: Final = AdminColumn(
    model=Queue,
    title=gettext_lazy("Last hour"),
    cells=_sparklines,
    template="django_ojs/admin/sparkline.html",
    is_wide_only=True,
)
