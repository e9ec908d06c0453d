"""A pretended card network. Its answer depends on card and attempt alone: every run is the same."""

SLOW_NETWORK = "card_slow_network"
DECLINED = "card_declined"
MALFORMED = "card_malformed"

#: With these cards no attempt can succeed.
NEVER_PAYS = frozenset({DECLINED, MALFORMED})

#: On this attempt a card on a slow network is heard for the first time.
SLOW_NETWORK_ANSWERS_ON = 3


class CardNetworkTimeout(Exception):
    """The network did not answer; another attempt may work."""


class CardDeclined(Exception):
    """The bank said no; it may think better of it, so the charge is tried again."""


class MalformedCard(Exception):
    """There is no such card; trying again cannot help."""


def authorise(card: str, *, attempt: int) -> None:
    """Ask the network for the money. Raises one of the errors above when it does not agree."""
    if card == SLOW_NETWORK and attempt < SLOW_NETWORK_ANSWERS_ON:
        raise CardNetworkTimeout("card network timeout")
    if card == DECLINED:
        raise CardDeclined("card declined by the bank")
    if card == MALFORMED:
        raise MalformedCard("card number fails its check digit")
