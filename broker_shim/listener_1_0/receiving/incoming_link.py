"""A link on which a client sends: bytes → message → store → outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from broker_shim.amqp_1_0.composites import Rejected
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.flow.publications import Publication
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.broker.wiring.address import Node
from broker_shim.completion import OnComplete
from broker_shim.errors import NotNow, StoreError
from broker_shim.listener_1_0.conditions import Refusal, error_of, refusal_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.outcomes import ACCEPTED, may_reject
from broker_shim.listener_1_0.receiving.incoming_message import (
    IncomingMessage,
    LargeContent,
    Publish,
)
from broker_shim.listener_1_0.receiving.link_credit import LinkCredit
from broker_shim.listener_1_0.receiving.link_route import Route, Routed, Unroutable
from broker_shim.listener_1_0.receiving.message_runs import MessageRuns
from broker_shim.listener_1_0.receiving.received_deliveries import STORED, ReceivedDeliveries
from broker_shim.listener_1_0.transactions.local_transaction import LocalTransaction, within
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.events import DeliveriesReceived, TransferPiece
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.store.interface import MessageHeader
from broker_shim.transactions.transaction_refusals import TransactionRefused

NOT_KEPT = Refusal(
    AmqpError.PRECONDITION_FAILED,
    "this broker keeps messages in memory only, so it takes none that is durable",
)
"""Told by the end of the link where it cannot be told otherwise (3.2.1)."""


class IncomingLink(ServedEndpoint):
    """Our receiving end of a link, on which a client sends.

    A delivery is settled when the store's completion has fired and never before; one that came
    settled is not answered at all. While the store has to catch up with a large message, the
    session's window stays shut: the peer waits, and what it had sent by then is taken.
    """

    _link: ReceiverLink

    def __init__(
        self,
        connection: Connection,
        link: ReceiverLink,
        node: Node,
        answering: ReceivedDeliveries,
        *,
        notes_all: bool,
    ) -> None:
        self._connection, self._broker = connection, connection.broker
        super().__init__(link)
        self._metrics = connection.broker.metrics
        self._route = Route(connection, node)
        self._resumable = answering
        self._answering = answering if notes_all else None
        may_send = self._route.may_send
        self._begin = partial(IncomingMessage, self._broker, node, connection.now_us, may_send)
        self._receiving: IncomingMessage | None = None
        self._partial: bytes | None = None
        settings = connection.broker.settings
        self._most_whole_bytes = min(STAGED_BYTES, settings.max_header_bytes)
        self._credit = LinkCredit(connection, link, self._answering)
        self._runs = MessageRuns(connection, self._route, self._credit, answering)
        self._is_refused = False
        self._holds_back = False
        self._held_bytes = 0

    def start(self) -> None:
        """Give the first credit."""
        self._credit.give()

    def gone(self) -> None:
        """End the endpoint, because the link, its session or its connection ended."""
        super().gone()
        self._credit.takes_none = True
        if self._partial is not None:
            self._resumable.remember(self._partial, None)
        self._end_receiving()

    def on_flow(self) -> None:
        """The peer told how it stands: how many it sent may be more than we knew."""
        if not self.is_gone and self._link.is_answered:
            self._credit.go_on()

    def on_dispositions(self, runs: Sequence[Run]) -> None:
        """A change of state of some that we have read and will answer, or did."""
        if self._answering is not None:
            for run in runs:
                if run.is_settled:
                    self._answering.settled(*filter(self._answering.holds, run.tags))

    def on_aborted(self, delivery: Delivery) -> None:
        """Drop a delivery that the peer gave up."""
        if self._answering is not None:
            self._answering.settled(delivery.tag)
        self._end_receiving()
        self._credit.go_on()

    def on_deliveries(self, came: DeliveriesReceived) -> int:
        """Take deliveries that came whole. They go to the store together.

        Returns:
            How many were taken in: the turn was over then.
        """
        turn, count, now_us = self._connection.turn, 0, self._connection.now_us()
        while count < came.delivery.length:
            if self._is_refused:
                count = came.delivery.length
                break
            taken = self._runs.take(came, count) if self._answering is None else 0
            if not taken:
                self._take_piece(came.piece(count), now_us)
            count += taken or 1
            if not turn.goes_on():
                break
        self._runs.hand_over(self._all_stored)
        if came.delivery.remote_state is not None:  # what a transaction has is answered already
            self._credit.go_on()
        return count

    def on_transfer(self, piece: TransferPiece) -> None:
        """Take bytes of a delivery."""
        if not self._is_refused:
            self._take_piece(piece, self._connection.now_us())
            self._runs.hand_over(self._all_stored)

    def _take_piece(self, piece: TransferPiece, now_us: int) -> None:
        """Take bytes of a delivery, which may be all of it."""
        is_whole = piece.is_last and self._receiving is None
        if not is_whole or len(piece.payload) > self._most_whole_bytes:
            self._on_piece(piece)
        elif self._answering is None or not self._is_known(piece, self._answering):
            self._take(piece.delivery, piece.payload, now_us)

    def _on_piece(self, piece: TransferPiece) -> None:
        """Take bytes of a delivery that comes in several frames, or is large."""
        receiving = self._receiving
        if receiving is None:
            if self._answering is not None and self._is_known(piece, self._answering):
                return
            receiving = self._receiving = self._begin()
            self._partial = None if piece.delivery.is_settled else piece.delivery.tag
        try:
            receiving.add(piece.payload, self._read_on)
        except (DecodeError, StoreError) as reason:
            self._end_link(refusal_of(reason))
            return
        if not piece.is_last:
            self._hold_back(is_full=receiving.is_full)
            self._count(receiving.held_bytes)
            return
        self._end_receiving()
        self._take(piece.delivery, receiving, self._connection.now_us())

    def _is_known(self, piece: TransferPiece, answering: ReceivedDeliveries) -> bool:
        """Whether a delivery was stored before: then it is read past, and answered at its end."""
        is_known = answering.is_known(piece)
        if is_known and piece.is_last and not piece.delivery.is_settled:
            self._credit.used()
            self._accept(piece.delivery)
        return is_known

    def _end_receiving(self) -> None:
        self._receiving = self._partial = None
        if self._holds_back:
            self._hold_back(is_full=False)
        if self._held_bytes:  # not of what came in one piece: the common way
            self._count(0)

    def _count(self, held_bytes: int) -> None:
        """Count what waits of a message; a peer may not begin any number of them."""
        self._held_bytes = held_bytes
        self._broker.unfinished.limit(self._connection, self, held_bytes)

    def give_up_unfinished(self, reason: str) -> None:
        """End the link: of what has not come whole there is too much."""
        self._end_link(Refusal(AmqpError.RESOURCE_LIMIT_EXCEEDED, f"messages {reason}"))

    def _hold_back(self, *, is_full: bool) -> None:
        """Shut the session's window while the store has to catch up, or open it again."""
        if is_full != self._holds_back:
            self._holds_back = is_full
            self._link.port.hold_back(is_held=is_full)

    def _end_link(self, refusal: Refusal) -> None:
        """End the link: a message that cannot be taken is not read to its end to tell so."""
        self._is_refused = self._credit.takes_none = True
        self._end_receiving()
        self._connection.detach(self._link, refusal)

    def _read_on(self) -> None:
        """Let the peer go on, as the store has caught up with a large message."""
        if not self.is_gone and self._receiving is not None:
            self._hold_back(is_full=self._receiving.is_full)
            self._connection.has_output()

    def _take(self, delivery: Delivery, came: bytes | IncomingMessage, now_us: int) -> None:
        """Act on a message that came whole."""
        if self._broker.is_stopping:
            return
        self._credit.used()
        self._metrics.received += 1
        try:
            transaction = self._connection.transactions.named_by(delivery.remote_state)
        except TransactionRefused as unknown:
            self._end_link(refusal_of(unknown))
            return
        try:
            if not isinstance(came, bytes):
                header, content = came.finish()
            else:
                header, content = self._runs.reader.read(came, now_us)
        except DecodeError as reason:
            self._refuse(delivery, refusal_of(reason), transaction)
            return
        if header.durable and self._runs.takes_no_durable:
            self._refuse(delivery, NOT_KEPT, transaction)
            return
        routed = self._route.of(header)
        if isinstance(routed, Refusal):
            self._refuse(delivery, routed, transaction)
            return
        self._give(delivery, transaction, header, content, routed)

    def _give(
        self,
        delivery: Delivery,
        transaction: LocalTransaction | None,
        header: MessageHeader,
        content: bytes | LargeContent,
        routed: Routed,
    ) -> None:
        """Have the store take a message: with the others that come now, or by itself."""
        self._connection.turn.spend(self._broker.work_of(header, routed.queues))
        is_noted = self._answering is not None and not delivery.is_settled
        is_alone = transaction is not None or is_noted or routed.is_new
        if isinstance(content, bytes) and not is_alone:
            self._runs.add(delivery, Publication((header,), (content,), routed.queues))
            return
        self._runs.hand_over(self._all_stored)  # what came before goes before
        put = partial(self._route.put, header, content, routed)
        if transaction is None:
            self._store(delivery, put)
        else:
            held_bytes = len(content) if isinstance(content, bytes) else 0
            self._put_within(transaction, delivery, held_bytes, put)

    def _all_stored(
        self, deliveries: Sequence[Delivery], outcomes: Sequence[StoreError | None]
    ) -> None:
        if not any(outcomes) and self._answering is None and not self.is_gone:
            self._credit.done(len(outcomes))
            self._link.dispose(deliveries, ACCEPTED)
            self._credit.go_on()
            return
        singles = (delivery.part(at, 1) for delivery in deliveries for at in range(delivery.length))
        for delivery, error in zip(singles, outcomes, strict=True):
            self._stored(delivery, None, error)

    def _store(self, delivery: Delivery, put: Callable[[OnComplete, Publish], None]) -> None:
        stored: OnComplete = partial(self._stored, delivery, None)
        publish: Publish = self._broker.publish
        if self._answering is not None and not delivery.is_settled:
            note, stored = self._answering.noting(delivery.tag, stored)
            if self._answering.is_durable:
                publish = partial(self._broker.publish, along=note)
        elif not delivery.is_settled:
            stored = self._resumable.awaited(stored)
        put(stored, publish)

    def _put_within(
        self,
        transaction: LocalTransaction,
        delivery: Delivery,
        content_bytes: int,
        put: Callable[[OnComplete, Publish], None],
    ) -> None:
        """Put a message within its transaction, and tell its outcome at once."""
        try:
            posting = transaction.post(content_bytes)
        except TransactionRefused as refusal:
            self._refuse(delivery, refusal_of(refusal), transaction)
            return

        def taken(error: StoreError | None) -> None:
            self._stored(delivery, transaction, error)
            posting.ended(error)

        put(taken, posting.publish)

    def _stored(
        self,
        delivery: Delivery,
        transaction: LocalTransaction | None,
        error: StoreError | None,
    ) -> None:
        if error is not None:
            if isinstance(error, NotNow):
                self._credit.failed()
            self._refuse(delivery, refusal_of(error), transaction)
            return
        if transaction is None:
            self._accept(delivery)
            return
        self._credit.done()
        if not self.is_gone:
            delivery.answer(within(transaction, ACCEPTED))
            self._credit.go_on()

    def _accept(self, delivery: Delivery) -> None:
        """Answer a delivery as accepted, now that it is stored."""
        answering = self._answering
        self._credit.done()
        if self.is_gone:
            if answering is None and not delivery.is_settled:
                self._resumable.remember(delivery.tag, STORED)
            return
        if answering is None:
            delivery.answer(ACCEPTED)
        elif delivery.is_settled:
            answering.settled(delivery.tag)
        else:
            answering.accept(delivery)
        self._credit.go_on()

    def _refuse(
        self, delivery: Delivery, refusal: Refusal, transaction: LocalTransaction | None
    ) -> None:
        """Tell that a message is not taken: by its outcome, its transaction, or the link's end.

        What came settled within a transaction is told when that is discharged, as rolled back, and
        the link goes on (Anonymous Terminus 2.2.2: what holds for transactions comes first).
        """
        if transaction is not None:
            transaction.spoil(f"a message was refused: {refusal.description}")
        self._credit.refused()
        self._metrics.refused += not isinstance(refusal, Unroutable)
        if self.is_gone:
            return
        if delivery.is_settled and transaction is not None:
            self._credit.go_on()
            return
        is_named = self._route.names_delivery(refusal)
        if is_named:
            refusal = refusal._replace(info={"delivery-tag": delivery.tag})
        is_told = delivery.is_settled and (is_named or refusal is NOT_KEPT)
        if is_told or not may_reject(self._link):
            self._end_link(refusal)
            return
        delivery.answer(within(transaction, Rejected(error_of(refusal))))
        self._credit.go_on()
