"""The column of the last hour in the list of queues."""

from collections.abc import Sequence
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.formatting import duration, number
from django_ojs.admin.panels import AdminColumn
from django_ojs.extensions.statistics.admin_svg import Chart, sparkline
from django_ojs.models import Queue
from django_ojs.reports.queue_overview import Flow, OverviewRow


def _sparklines(rows: Sequence[OverviewRow]) -> dict[str, Chart]:
    return {row.name: _sparkline(row.flow) for row in rows if row.is_flow_known}


def _sparkline(flow: Flow) -> Chart:
    came, went = flow.came[:-1], flow.went[:-1]
    title = _("In %(time)s: %(came)s in, %(went)s out, at most %(most)s out per minute")
    figures = {"came": number(sum(came)), "went": number(sum(went)), "most": number(max(went))}
    figures["time"] = duration(60 * len(flow.came))
    return sparkline(title % figures, went, came=came)


LAST_HOUR: Final = AdminColumn(
    model=Queue,
    title=gettext_lazy("In and out, last hour"),
    cells=_sparklines,
    template="django_ojs/admin/sparkline.html",
    is_wide_only=True,
)
