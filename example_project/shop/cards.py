"""A simulated card network. Its response depends on card and attempt only."""

SLOW_NETWORK = "card_slow_network"
DECLINED = "card_declined"
MALFORMED = "card_malformed"

#: With these cards no attempt can succeed.
NEVER_PAYS = frozenset({DECLINED, MALFORMED})

#: The first attempt at which a slow network responds.
SLOW_NETWORK_RESPONDS_ON = 3


class CardNetworkTimeout(Exception):
    """The network did not respond; another attempt may succeed."""


class CardDeclined(Exception):
    """The bank declined; the charge is retried, because the bank may accept it later."""


class MalformedCard(Exception):
    """There is no such card; a retry cannot succeed."""


def authorise(card: str, *, attempt: int) -> None:
    """Charge the card. Raises one of the errors above when the network declines."""
    if card == SLOW_NETWORK and attempt < SLOW_NETWORK_RESPONDS_ON:
        raise CardNetworkTimeout("card network timeout")
    if card == DECLINED:
        raise CardDeclined("card declined by the bank")
    if card == MALFORMED:
        raise MalformedCard("card number fails its check digit")
