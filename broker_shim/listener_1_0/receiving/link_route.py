"""Where the messages of one link go that a client sends on: queues, or why there are none.

A target without an address is a relay (AMQP Anonymous Terminus for Message Routing). Each message
says in its `to` where it goes, and fares there as an attach to that address would.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.queues.local_messages import Origin, without_local
from broker_shim.broker.wiring.address import (
    AddressNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    Node,
    QueueNode,
    described,
)
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.listener_1_0.authorization import may, refusal_of_act, refusal_of_user_id
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.messages.annotations import is_for_topic
from broker_shim.listener_1_0.receiving.incoming_message import LargeContent, Publish
from broker_shim.security.rules.rights import Act
from broker_shim.sockets.authorization import is_impersonation
from broker_shim.store.interface import MessageHeader

_OF_ROUTING = frozenset(
    {AmqpError.NOT_FOUND, AmqpError.UNAUTHORIZED_ACCESS, AmqpError.INVALID_FIELD}
)
"""What an attach to a message's `to` would be refused by."""


class Unroutable(Refusal):
    """Why a message is refused that no queue gets: it is counted by itself."""

    __slots__ = ()


class Routed(NamedTuple):
    """The queues that a message goes to: all of these, or none.

    Attributes:
        queues: Their names; none if it is taken, and all who might have it want none of its sender.
        is_new: There is one, and it is to be made first.
    """

    queues: set[str]
    is_new: bool = False


class Route:
    """Tells for each message of one link which queues it goes to, or why to none."""

    def __init__(self, connection: Connection, node: Node) -> None:
        self._connection, self._broker = connection, connection.broker
        self._metrics, self._destinations = self._broker.metrics, self._broker.destinations
        self._node = node
        self._own = node if isinstance(node, QueueNode) else None
        self._own_route = Routed(set() if self._own is None else {self._own.queue})
        self._origin = Origin(connection.number, connection.container)
        self._is_refusal_told = False
        if self._own is not None:
            self._broker.unused_queues.keep_for(self._own.queue, self)

    def names_delivery(self, refusal: Refusal) -> bool:
        """Whether a refusal is told with the delivery's tag, and ends the link of a settled one.

        A relay's is, of where the message was to go; on any link that of who it says it is from.
        """
        is_of_relay = isinstance(self._node, AnonymousNode) and refusal.condition in _OF_ROUTING
        return is_of_relay or refusal.condition == AmqpError.UNAUTHORIZED_ACCESS

    def may_send(self, header: MessageHeader) -> bool:
        """Whether the peer may send such a message; nothing is written down."""
        node = self._destinations.node_named_by(self._node, header)
        is_allowed = node is self._node or may(self._connection, Act.SEND, node)
        return is_allowed and not is_impersonation(self._connection, header)

    def own(self, header: MessageHeader) -> Routed | None:
        """The queue that the link itself names, if a message with this header just goes there.

        None: `of` says where it goes, and looks at who the message says that it is from.
        """
        if header.user_id or self._own is None or self._own.queue not in self._broker.queues:
            return None
        return self._own_route

    def of(self, header: MessageHeader) -> Routed | Refusal:
        """Find the queues that a message goes to; or why it cannot go."""
        if header.user_id and is_impersonation(self._connection, header):
            is_told, self._is_refusal_told = self._is_refusal_told, True
            return refusal_of_user_id(self._connection, header.user_id, is_told=is_told)
        if self._own is not None and self._own.queue in self._broker.queues:
            return self._own_route  # most often
        node = self._destinations.node_named_by(self._node, header)
        if node is not self._node:  # what the link itself names was looked at when it was attached
            denial = self._denied(Act.SEND, node, header)
            if denial is not None:
                return denial
        if isinstance(self._node, AnonymousNode) and is_for_topic(header):
            return self._for_topic(node, header)
        return self._at(node, header)

    def _at(self, node: Node, header: MessageHeader) -> Routed | Refusal:
        """Find the queues of a node; a topic without subscribers has none, as JMS has it."""
        queues = self._broker.queues_for(node, header)
        if queues:
            served, claims = self._broker.queues, self._broker.claims
            return Routed(without_local(served, claims, queues, self._origin))
        if isinstance(node, AddressNode | ExchangeNode) and node.is_topic:
            return Routed(set())
        if isinstance(self._node, AnonymousNode) and isinstance(node, QueueNode):
            return self._created_for(node, header)
        return self._unroutable(node, described(node))

    def _for_topic(self, node: Node, header: MessageHeader) -> Routed | Refusal:
        """The queues of a message that says itself that it is for a topic, as an attach would."""
        is_missing = isinstance(node, QueueNode) and node.queue not in self._broker.queues
        denial = self._denied(Act.MAKE_QUEUE, node, header) if is_missing else None
        if denial is not None:
            return denial
        try:
            return self._at(self._destinations.as_topic(node), header)
        except InvalidRequest as reason:
            return self._unroutable(node, str(reason))

    def _unroutable(self, node: Node, reason: str) -> Unroutable:
        self._metrics.unroutable += 1
        condition = (
            AmqpError.INVALID_FIELD if isinstance(node, MalformedNode) else AmqpError.NOT_FOUND
        )
        return Unroutable(condition, f"no queue for this message: {reason}")

    def _created_for(self, node: QueueNode, header: MessageHeader) -> Routed | Refusal:
        """The queue that an attach to the message's `to` would create; or what it is refused by.

        Such an attach and such a message fare alike (Anonymous Terminus 2.2.2).
        """
        denial = self._denied(Act.MAKE_QUEUE, node, header)
        if denial is not None:
            return denial
        try:
            self._destinations.on_demand(node.queue)
        except InvalidRequest as reason:
            return self._unroutable(node, str(reason))
        return Routed({node.queue}, is_new=True)

    def put(
        self,
        header: MessageHeader,
        content: bytes | LargeContent,
        routed: Routed,
        on_done: OnComplete,
        publish: Publish,
    ) -> None:
        """Put a message on queues, all or none, when they and all of it are there."""

        def put_on_queues(error: StoreError | None) -> None:
            if error is not None:
                on_done(error)
            elif isinstance(content, LargeContent):
                content.enqueue(routed.queues, on_done, publish)
            else:
                publish(header, content, routed.queues, on_done)

        if routed.is_new:
            (name,) = routed.queues
            user = self._connection.login.principal.name
            self._broker.ensure_queue_for(user, name, put_on_queues)
        else:
            put_on_queues(None)

    def _denied(self, act: Act, node: Node, header: MessageHeader) -> Refusal | None:
        is_told = self._is_refusal_told
        denial = refusal_of_act(self._connection, act, node, header.to, is_told=is_told)
        self._is_refusal_told |= denial is not None
        return denial
