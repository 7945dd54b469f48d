"""Whole messages that have the header of the one before them on their link: taken as one.

All that is decided about a message on its way in is decided by its header: whether it is taken,
where it goes, what work it is. So for messages of one header it is decided once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from broker_shim.broker.settings import DurableMessages
from broker_shim.listener_1_0.connection import Connection
from broker_shim.listener_1_0.messages.message_reader import MessageReader
from broker_shim.listener_1_0.receiving.credit_window import CreditWindow
from broker_shim.listener_1_0.receiving.link_route import Route
from broker_shim.listener_1_0.receiving.whole_messages import WholeMessages
from broker_shim.protocol_1_0.events import TransferPiece
from broker_shim.protocol_1_0.links.link import Delivery

AT_A_TIME = 8
"""Messages that are taken before the turn's clock is looked at: some 50 µs."""


class AlikeMessages:
    """Takes messages of one link that are like the one before. On the loop's thread only.

    Attributes:
        reader: Reads each other message that comes whole.
        takes_no_durable: The broker keeps messages in memory only, and says so.
    """

    def __init__(
        self, connection: Connection, route: Route, window: CreditWindow, whole: WholeMessages
    ) -> None:
        """Begin with the parts of the link, which each message that is taken goes through.

        Args:
            connection: The connection that the link is on.
            route: Tells where a message goes.
            window: Counts what is under way.
            whole: Gets what is taken.
        """
        self._connection, self._broker = connection, connection.broker
        self._route, self._window, self._whole = route, window, whole
        settings = connection.broker.settings
        self.reader = MessageReader(settings.max_header_bytes)
        self.takes_no_durable = settings.durable_messages is DurableMessages.REJECTED

    def take(self, pieces: Sequence[TransferPiece], first: int) -> int:
        """Take messages from `first` on, some at a time, of which none is in a transaction.

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
        deliveries, payloads = list[Delivery](), list[bytes]()
        for piece in islice(pieces, first, first + most):
            if not piece.is_last or piece.delivery.remote_state is not None:
                break
            deliveries.append(piece.delivery)
            payloads.append(piece.payload)
        contents = self.reader.alike(payloads)
        count = len(contents)
        if count:
            self._window.used(count)
            self._broker.metrics.received += count
            self._connection.turn.spend(count * work)
            self._whole.add(deliveries[:count], header, contents, routed.queues)
        return count
