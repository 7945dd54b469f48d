"""A link to `$management`: requests in, and answers put on the queues of their reply-to.

A request whose answer could not be sent is refused before anything of it is done: its delivery is
rejected. All others are accepted when their answer is on its queue. What a connection asks on one
link is done one request after the other, so a read sees what was created before it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

from broker_shim.amqp_1_0.composites import Accepted, Rejected, Target
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.authorization import refusal_of_act
from broker_shim.listener_1_0.conditions import Refusal, refusal_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.management.management_node import ManagementNode
from broker_shim.listener_1_0.management.messages import (
    ManagementAnswer,
    ManagementRequest,
    encoded_answer,
    request_of,
)
from broker_shim.listener_1_0.messages.message import PROTOCOL, parse
from broker_shim.listener_1_0.outcomes import ACCEPTED
from broker_shim.listener_1_0.receiving.command_link import CommandLink
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.security.rules.rights import Act
from broker_shim.store.interface import MessageHeader
from sparkstore.core.queue_names import MANAGEMENT, shown

MOST_BYTES = 65_536
"""Of a request."""
_CREDIT = 16
"""Requests that a client may have on their way."""

_ANY_ANSWER = MessageHeader(PROTOCOL, durable=False)
_OUTCOMES = tuple(kind.DESCRIPTOR for kind in (Accepted, Rejected))

_log = logging.getLogger(__name__)


def attach_management(connection: Connection, link: ReceiverLink) -> None:
    """Serve a link to the node; it ends with its session, and is no terminus."""
    ManagementLink(connection, link, _CREDIT).serve(Target(MANAGEMENT), _OUTCOMES, MOST_BYTES)


class ManagementLink(CommandLink):
    """Our end of a link on which requests come. On the loop's thread only."""

    def __init__(self, connection: Connection, link: ReceiverLink, credit: int) -> None:
        super().__init__(connection, link, credit)
        self._node = ManagementNode(connection)
        self._waiting: deque[tuple[Delivery, ManagementRequest]] = deque()
        self._is_busy = False

    def gone(self) -> None:
        """Forget the requests that are not begun: their client has not been told of any outcome."""
        super().gone()
        self._waiting.clear()

    def _take(self, delivery: Delivery, encoded: bytes) -> None:
        if delivery.remote_state is not None:
            text = "a request is no part of a transaction: send it without one"
            self._reject(delivery, Refusal(AmqpError.NOT_ALLOWED, text))
            return
        try:
            request = request_of(encoded)
        except DecodeError as reason:
            self._reject(delivery, refusal_of(reason))
            return
        self._waiting.append((delivery, request))
        self._go_on()

    def _go_on(self) -> None:
        """Begin with the next request, if none is under way."""
        while self._waiting and not self._is_busy and not self.is_gone:
            delivery, request = self._waiting.popleft()
            refusal = self._refusal_of_reply(request)
            if refusal is not None:
                self._reject(delivery, refusal)
                continue
            self._is_busy = True
            self._node.answer(request, partial(self._put_answer, delivery, request))

    def _refusal_of_reply(self, request: ManagementRequest) -> Refusal | None:
        """Why the answer cannot be sent where the client wants it; None if it can."""
        address = request.reply_to
        if address is None:
            return Refusal(AmqpError.INVALID_FIELD, "a request needs a reply-to: a queue's address")
        broker = self._connection.broker
        node = broker.destinations.node_of(address)
        refusal = refusal_of_act(self._connection, Act.SEND, node, address)
        if refusal is None and not broker.queues_for(node, _ANY_ANSWER):
            refusal = Refusal(
                AmqpError.NOT_FOUND, f"no queue for the answer: reply-to {shown(address)}"
            )
        return refusal

    def _put_answer(
        self, delivery: Delivery, request: ManagementRequest, answer: ManagementAnswer
    ) -> None:
        """Put an answer on the queue of the request's reply-to, then accept the request.

        What was ordered is done by now, so the request is accepted even if its answer is lost: the
        queue may have been deleted meanwhile, or be full.
        """
        broker, now_us = self._connection.broker, self._connection.now_us()
        header, body = parse(encoded_answer(answer, request.correlation_id), now_us=now_us)

        def sent(error: StoreError | None) -> None:
            if error is not None:
                _log.warning("an answer of %s is lost: %s", MANAGEMENT, error)
            self._is_busy = False
            self._answer(delivery, ACCEPTED)
            self._take_more(len(self._waiting))
            self._go_on()

        node = broker.destinations.node_of(request.reply_to)
        broker.publish(header, body, broker.queues_for(node, header), sent)

    def _reject(self, delivery: Delivery, refusal: Refusal) -> None:
        """Tell why a request is not looked at."""
        super()._reject(delivery, refusal)
        self._take_more(len(self._waiting))
