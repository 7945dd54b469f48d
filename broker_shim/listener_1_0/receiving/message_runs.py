"""Messages of one link that came whole, as runs, until they go to the store together.

All that is decided about a message on its way in is decided by what its shape has: whether it is
taken, where it goes, what work it is. So for messages of one shape it is decided once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from broker_shim.broker.flow.publications import Publication, PublicationRuns
from broker_shim.broker.settings import DurableMessages
from broker_shim.completion import nobody
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.messages.message_reader import MessageReader
from broker_shim.listener_1_0.outcomes import ACCEPTED
from broker_shim.listener_1_0.receiving.link_credit import LinkCredit
from broker_shim.listener_1_0.receiving.link_route import Route
from broker_shim.listener_1_0.receiving.received_deliveries import ReceivedDeliveries
from broker_shim.listener_1_0.transactions.local_transaction import within
from broker_shim.protocol_1_0.events import DeliveriesReceived
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.transactions.transaction_refusals import TransactionRefused

AT_A_TIME = 64
"""Messages that are taken before the turn's clock is looked at: some 0.5 ms."""

Outcomes = Sequence[StoreError | None]


class MessageRuns:
    """The runs of one link that wait for the end of a turn. On the loop's thread only.

    Attributes:
        reader: Reads the messages.
        takes_no_durable: The broker keeps messages in memory only, and says so.
    """

    def __init__(
        self,
        connection: Connection,
        route: Route,
        credit: LinkCredit,
        answering: ReceivedDeliveries,
    ) -> None:
        """Begin with no message.

        Args:
            connection: The connection that the link is on.
            route: Tells where a message goes.
            credit: Counts what is under way.
            answering: The next attach of the link waits for what becomes of them.
        """
        self._connection, self._broker = connection, connection.broker
        self._route, self._credit, self._answering = route, credit, answering
        settings = connection.broker.settings
        self.reader = MessageReader(settings.max_header_bytes)
        self.takes_no_durable = settings.durable_messages is DurableMessages.REJECTED
        self._deliveries: list[Delivery] = []
        self._publications = PublicationRuns()

    def take(self, came: DeliveriesReceived, first: int) -> int:
        """Take messages from `first` on, as far as they have the shape of one before.

        Returns:
            How many were taken; 0: the first is to be looked at by itself.
        """
        header = self.reader.header
        if header is None or self._broker.is_stopping:
            return 0
        routed = self._route.own(header)
        if routed is None or (header.durable and self.takes_no_durable):
            return 0
        work = self._broker.work_of(header, routed.queues)
        most = AT_A_TIME
        if work:  # no more than the turn has left for
            most = max(1, min(most, self._connection.turn.work_left // work))
        last = first + most
        read = self.reader.read_run(came.encoded, came.starts[first:last], came.ends[first:last])
        if read is None:
            return 0
        run = Publication(*read, routed.queues)
        delivery, count = came.delivery.part(first, len(run.contents)), len(run.contents)
        if delivery.remote_state is None:
            self._credit.used(count)
            self.add(delivery, run)
        elif not self._post(delivery, run):
            return 0
        self._broker.metrics.received += count
        self._connection.turn.spend(count * work)
        return count

    def _post(self, delivery: Delivery, run: Publication) -> bool:
        """Put messages within the transaction that their deliveries name, and tell their outcome.

        Returns:
            False if it does not take all of them, or one needs more than an enqueue: none is put.
        """
        try:
            transaction = self._connection.transactions.named_by(delivery.remote_state)
        except TransactionRefused:
            return False
        is_taken = transaction is not None and transaction.post_run(run)
        if is_taken:
            delivery.link.dispose((delivery,), within(transaction, ACCEPTED))
        return is_taken

    def add(self, delivery: Delivery, run: Publication) -> None:
        """Add the messages of deliveries behind the others."""
        joined = self._deliveries[-1].joined(delivery) if self._deliveries else None
        if joined is None:
            self._deliveries.append(delivery)
        else:
            self._deliveries[-1] = joined
        self._publications.add(*run)

    def hand_over(self, on_stored: Callable[[Sequence[Delivery], Outcomes], None]) -> None:
        """Give whole messages to the store; the next attach of the link waits for what it says.

        Args:
            on_stored: Gets deliveries, and what came of the message of each. It is not kept
                longer than the store needs it: the link holds this, and would be a cycle.
        """
        if not self._deliveries:
            return
        deliveries, self._deliveries = self._deliveries, []
        ends = [*accumulate(delivery.length for delivery in deliveries)]
        left, all_told = ends[-1], self._answering.awaited(nobody)

        def stored(first: int, outcomes: Outcomes) -> None:
            nonlocal left
            left -= len(outcomes)
            try:
                on_stored([*_some(deliveries, ends, first, len(outcomes))], outcomes)
            finally:
                if not left:
                    all_told(None)

        self._broker.publications.publish(self._publications.taken(), stored)


def _some(
    deliveries: Sequence[Delivery], ends: Sequence[int], first: int, count: int
) -> Iterator[Delivery]:
    """Find the deliveries of so many messages; `ends` tells how many messages there are by each."""
    at = bisect_right(ends, first)
    while count > 0:
        delivery = deliveries[at]
        start = first - (ends[at] - delivery.length)
        part = delivery.part(start, min(count, delivery.length - start))
        yield part
        first, count, at = first + part.length, count - part.length, at + 1
