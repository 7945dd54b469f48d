"""A link whose messages are commands to the broker itself, and go to no queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from broker_shim.amqp_1_0.composites import Rejected, Source
from broker_shim.listener_1_0.conditions import Refusal, error_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.pending_attach import grant
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.outcomes import may_reject
from broker_shim.protocol_1_0.events import DeliveriesReceived, TransferPiece
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.receiver import ReceiverLink


class CommandLink(ServedEndpoint, ABC):
    """Our end of such a link: it puts commands together, and takes one after the other.

    A command is bounded by the size of a message that the link was granted.
    """

    def __init__(self, connection: Connection, link: ReceiverLink, credit: int) -> None:
        """Begin with nothing received.

        Args:
            connection: The connection that the link is on.
            link: The link, on which the peer sends.
            credit: Commands that the peer may have on their way.
        """
        super().__init__(link)
        self._connection, self._most_credit = connection, credit
        self._pieces: list[bytes] = []

    def serve(self, target: Any, outcomes: Sequence[str], most_bytes: int) -> None:
        """Answer the attach: what the link is to, how commands end, and how large one may be."""
        remote = self._link.remote.source
        source = Source(None if remote is None else remote.address, outcomes=tuple(outcomes))
        sizes = {"max_message_size": most_bytes}
        grant(self._connection, self._link, self, source=source, target=target, **sizes)

    def start(self) -> None:
        """Give the first credit."""
        self._link.flow(self._most_credit)

    def gone(self) -> None:
        """Note that the link ended, and forget a command that came in part."""
        super().gone()
        self._pieces.clear()

    def on_aborted(self, delivery: Delivery) -> None:  # noqa: ARG002
        """Drop a command that the peer gave up."""
        self._pieces.clear()

    def on_deliveries(self, came: DeliveriesReceived) -> int:
        """Take a command that came whole: one, as it may change what the next one means."""
        self.on_transfer(came.piece(0))
        return 1

    def on_transfer(self, piece: TransferPiece) -> None:
        """Take bytes of a command."""
        self._pieces.append(piece.payload)
        if piece.is_last:
            encoded = b"".join(self._pieces)
            self._pieces.clear()
            if not (self.is_gone or self._connection.broker.is_stopping):
                self._take(piece.delivery, encoded)

    def _take_more(self, waiting: int = 0) -> None:
        """Let the peer send more, of which so many wait to be done."""
        if not self.is_gone and self._link.credit <= self._most_credit // 2:
            self._link.flow(self._most_credit - waiting)

    def _reject(self, delivery: Delivery, refusal: Refusal) -> None:
        """Tell why not; one that takes no such outcome is told by the end of the link (4.3)."""
        if may_reject(self._link):
            self._answer(delivery, Rejected(error_of(refusal)))
        else:
            self._detach(refusal)

    def _answer(self, delivery: Delivery, state: Any) -> None:
        if not self.is_gone:
            delivery.answer(state)
            self._connection.has_output()

    def _detach(self, refusal: Refusal) -> None:
        self._connection.detach(self._link, refusal)

    @abstractmethod
    def _take(self, delivery: Delivery, encoded: bytes) -> None:
        """Act on a command that came whole."""
