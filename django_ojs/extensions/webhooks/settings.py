"""The settings of webhooks."""

from dataclasses import dataclass

from django_ojs.setting import BOOLEAN, NETWORKS, boolean, networks, setting
from django_ojs.spec.addresses import Network


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    webhook_http: bool = setting(False, boolean, BOOLEAN)
    webhook_private_networks: tuple[Network, ...] = setting((), networks, NETWORKS)
