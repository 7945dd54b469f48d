"""message.transfer of a client: where it goes, and when it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from broker_shim.amqp_0_10.commands import MessageReject, MessageTransfer
from broker_shim.amqp_0_10.definitions import (
    ExecutionErrorCode,
    MessageAcceptMode,
    MessageRejectCode,
)
from broker_shim.broker.flow.publications import PublicationRuns
from broker_shim.broker.queues.local_messages import Origin, without_local
from broker_shim.broker.settings import DurableMessages
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import ExchangeNode, Node, described
from broker_shim.errors import StoreError
from broker_shim.framing.assembly import Assembly, TransferRun
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.framing.sequences import after, numbers_of, ranges_of
from broker_shim.listener_0_10.messages.message_headers import check_items, read_header
from broker_shim.listener_0_10.refusals import not_found, short_text
from broker_shim.listener_0_10.sessions.authorization import check, check_user_id
from broker_shim.security.rules.rights import Act
from sparkstore.core.queue_names import shown

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session import Amqp010Session


class SessionPublisher:
    """The messages of one session on their way to the store: those of one turn go together.

    Each is for itself all the same: it has its queues, its completion, and its refusal. What a
    transaction sends waits there. Messages with the same header are alike in all that is decided
    about them, so it is decided once.
    """

    def __init__(self, session: Amqp010Session) -> None:
        """Begin; the session is an `Amqp010Session`."""
        self._session, self._metrics = session, session.broker.metrics
        self._numbers: list[int] = []
        self._messages = PublicationRuns()
        self._sizes: list[int] = []
        self._allowed: tuple[str, str, Node] | None = None

    def add(self, assembly: Assembly) -> None:
        """Take messages for the queues that each is routed to; complete when the store has them.

        Raises:
            RemoteCommandError: One goes nowhere, or may not; those before it are taken.
        """
        transfer, command_id = assembly.method, assembly.command_id
        assert isinstance(transfer, MessageTransfer)
        assert command_id is not None
        if isinstance(assembly, TransferRun):
            headers, bodies = assembly.headers, assembly.bodies
        else:
            segments = assembly.header or HeaderSegment.of(), assembly.body or BodySegment(b"")
            headers, bodies = ([segment.payload] for segment in segments)
        shapes = zip(headers, map(len, bodies), strict=True)
        at = 0
        for (header, _size), alike in groupby(shapes):
            count = len([*alike])
            numbers = [*numbers_of(((after(command_id, at), after(command_id, at + count - 1)),))]
            self._session.current = numbers[0]
            self._metrics.received += count
            try:
                self._add(transfer, numbers, HeaderSegment(header), bodies[at : at + count])
            except RemoteCommandError:
                self._metrics.refused += 1
                raise
            at += count

    def _add(
        self,
        transfer: MessageTransfer,
        numbers: Sequence[int],
        header: HeaderSegment,
        bodies: Sequence[bytes],
    ) -> None:
        """Add messages with one header and bodies of one length, as `add` does."""
        session = self._session
        broker, connection = session.broker, session.connection
        exchange = transfer.destination or ""
        node = self._place(exchange, header.delivery.routing_key or "")
        check_items(header, broker.settings.max_header_bytes)
        stored = read_header(header, exchange, len(bodies[0]))
        check_user_id(session, stored)
        if stored.durable and broker.settings.durable_messages is DurableMessages.REJECTED:
            text = "durable messages are not kept here: send them non-persistent"
            raise RemoteCommandError(ExecutionErrorCode.PRECONDITION_FAILED, text)
        routed = broker.queues_for(node, stored)
        queues = without_local(broker.queues, broker.claims, routed, Origin(connection.number))
        if not routed:
            is_dropped = header.delivery.discard_unroutable
            _unroutable(session, transfer, numbers, node, is_dropped=is_dropped)
        elif not queues:
            session.complete(*numbers)
        elif session.transaction is not None:
            session.transaction.publish(stored, bodies, queues)
            session.complete(*numbers)
        else:
            count, size = len(bodies), len(bodies[0]) + stored.header_bytes
            connection.waiting_bytes += count * size
            connection.turn.spend(count * broker.work_of(stored, queues))
            self._numbers += numbers
            self._messages.add((stored,), bodies, queues)
            self._sizes += [size] * count

    def _place(self, exchange: str, routing_key: str) -> Node:
        """Find where a message is sent, if its sender may; asked once for all that go together."""
        known = self._allowed
        if known is not None and known[0] == exchange and known[1] == routing_key:
            return known[2]
        session = self._session
        node = _node(session.broker, exchange, routing_key)
        check(session, Act.SEND, node, exchange or routing_key)
        if exchange and exchange not in session.broker.router:
            text = f"there is no exchange {shown(exchange)}"
            raise not_found(text)
        self._allowed = exchange, routing_key, node
        return node

    def hand_over(self) -> None:
        """Give the store what came, in its order."""
        self._allowed = None
        if not self._numbers:
            return
        connection = self._session.connection
        numbers, sizes = self._numbers, self._sizes
        self._numbers, self._sizes = [], []

        def stored(first: int, outcomes: Sequence[StoreError | None]) -> None:
            last = first + len(outcomes)
            connection.waiting_bytes -= sum(sizes[first:last])
            self._stored(numbers[first:last], outcomes)

        self._session.broker.publications.publish(self._messages.taken(), stored)

    def _stored(self, numbers: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
        """The first that is refused ends the session: of those after it nobody is told."""
        session = self._session
        refused = next((at for at, why in enumerate(outcomes) if why is not None), len(outcomes))
        self._metrics.refused += sum(error is not None for error in outcomes)
        session.complete(*numbers[:refused])
        if refused < len(outcomes):
            session.done(numbers[refused])(outcomes[refused])


def _node(broker: Broker, exchange: str, routing_key: str) -> Node:
    if not exchange:
        return broker.destinations.node_of(routing_key)
    return ExchangeNode(exchange, routing_key)


def _unroutable(
    session: Amqp010Session,
    transfer: MessageTransfer,
    numbers: Sequence[int],
    node: Node,
    *,
    is_dropped: bool,
) -> None:
    """Refuse messages that no queue gets, or drop them if their sender said so."""
    session.broker.metrics.unroutable += len(numbers)
    if not is_dropped and transfer.accept_mode != MessageAcceptMode.EXPLICIT:
        raise not_found(f"no queue for this message: {described(node)}")
    if not is_dropped:
        ranges, text = ranges_of(numbers), short_text(described(node))
        session.command(MessageReject(ranges, MessageRejectCode.UNROUTABLE, text))
    session.complete(*numbers)
