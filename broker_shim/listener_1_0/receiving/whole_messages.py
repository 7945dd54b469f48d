"""Messages of one link that came whole, until they go to the store together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from broker_shim.broker.storage.publications import Publication
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.receiving.received_deliveries import ReceivedDeliveries
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.store.interface import MessageHeader

_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each

Outcomes = Sequence[StoreError | None]


class WholeMessages:
    """The whole messages that wait for the end of a turn. On the loop's thread only."""

    def __init__(self, broker: Broker, answering: ReceivedDeliveries) -> None:
        self._broker, self._answering = broker, answering
        self._deliveries: list[Delivery] = []
        self._messages: list[Publication] = []

    def add(
        self,
        deliveries: Sequence[Delivery],
        header: MessageHeader,
        contents: Sequence[bytes],
        queues: Collection[str],
    ) -> None:
        """Add messages of one header after the others, with the queues that they go to."""
        self._deliveries += deliveries
        for content in contents:
            self._messages.append(_new(Publication, (header, content, queues)))

    def hand_over(self, on_stored: Callable[[Sequence[Delivery], Outcomes], None]) -> None:
        """Give whole messages to the store; the next attach of the link waits for what it says.

        Args:
            on_stored: Gets deliveries, and what came of the message of each. It is not kept
                longer than the store needs it: the link holds this, and would be a cycle.
        """
        if not self._messages:
            return
        deliveries, messages = self._deliveries, self._messages
        self._deliveries, self._messages = [], []
        left, all_told = len(deliveries), self._answering.awaited(_nothing)

        def stored(first: int, outcomes: Outcomes) -> None:
            nonlocal left
            left -= len(outcomes)
            try:
                on_stored(deliveries[first : first + len(outcomes)], outcomes)
            finally:
                if not left:
                    all_told(None)

        self._broker.publications.publish(messages, stored)


def _nothing(_error: StoreError | None) -> None:
    """Ignore the outcome: no other caller waits for it."""
