"""The names of this broker now: queues on their addresses, exchanges, address settings.

It decides where a message goes and what a queue created on demand is like; it makes no queue and
knows no store. On the loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from broker_shim.addressing.bindings import AddressManager, Ambiguous, Routing
from broker_shim.addressing.fqqn import key_of
from broker_shim.addressing.topics import TopicBindings, too_long
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.broker.wiring.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    Node,
    QueueNode,
    node_of,
    refusal_to_create,
)
from broker_shim.broker.wiring.headers_exchange import Get
from broker_shim.broker.wiring.routing import Router
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import ExchangeBindingKey, MessageHeader, Queue
from sparkstore.core.queue_arguments import target_of
from sparkstore.core.queue_names import canonical, is_temporary_topic, parts_of, shown

_log = logging.getLogger(__name__)

_MOST_TOLD = 1000


class Destinations:
    """The places where messages can go."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.router = Router()
        self.addresses = AddressManager()
        self._auto_create = settings.auto_create
        self._settings = _Matches(settings.addresses)
        self._told: set[object] = set()

    def node_of(self, address: str | None) -> Node:
        """Find the node that an address names now."""
        return node_of(
            address,
            addresses=self.addresses,
            exchanges=self.router,
            routing_of=self._routing_of,
        )

    def source_of(self, address: str | None) -> Node:
        """Find a receiver's node: an anycast address is its queue, if it has only one.

        A receiver that named no queue is not given an arbitrary one: with several it is told.
        """
        node = self.node_of(address)
        if not isinstance(node, AddressNode) or self.is_multicast(node.address):
            return node
        names = [binding.name for binding in self.addresses.on(node.address)]
        if len(names) == 1:
            return QueueNode(names[0])
        return AmbiguousNode(Ambiguous(node.address, tuple(sorted(names))))

    def node_named_by(self, node: Node, header: MessageHeader) -> Node:
        """Find the node that a message goes to; sent to no node, it goes where its `to` says.

        A message whose `to` or subject is too long to be looked up names nothing.
        """
        if isinstance(node, AnonymousNode) and header.to:
            node = self.node_of(header.to)
        if isinstance(node, ExchangeNode) and node.routing_key is None and header.subject:
            is_read = self.router.reads_words(node.exchange)
            reason = too_long(header.subject) if is_read else None
            return node if reason is None else MalformedNode(reason)
        return node

    def queues_for(
        self, node: Node, header: MessageHeader, get: Get = lambda _name: None
    ) -> set[str]:
        """The queues that a message sent to a node goes to; none if it routes nowhere.

        Args:
            node: Where it was sent.
            header: The message's header.
            get: Tells its application properties, which headers exchanges route by.
        """
        match self.node_named_by(node, header):
            case QueueNode(queue):
                return {queue}
            case AddressNode(address, is_topic):
                routing = Routing.MULTICAST if is_topic else self._routing_of(address)
                return set(self.addresses.route(address, routing))
            case ExchangeNode(exchange, key):
                routing_key = key if key is not None else header.subject or ""
                return self.router.route(exchange, routing_key, get)
            case AmbiguousNode(ambiguous):
                self.warn(ambiguous, is_repeated=False)
                return set()
            case AnonymousNode() | MalformedNode():
                return set()

    def as_topic(self, node: Node) -> Node:
        """Find the node of a link that asks for a topic: each subscriber gets each message.

        A name that nobody has is a multicast address from then on: as long as a subscription is on
        it. So every broker on the store sees by the queues what the address is, and no restart
        changes it.

        Raises:
            InvalidRequest: It is a queue, or an anycast address, or is not made on demand.
        """
        match node:
            case AddressNode(address) if self.is_multicast(address):
                return replace(node, is_topic=True)
            case ExchangeNode():
                return replace(node, is_topic=True)
            case QueueNode(name) if key_of(name).queue == name and name not in self.addresses:
                self.on_demand(name)
                return AddressNode(name, is_topic=True)
            case AddressNode(name) | QueueNode(name):
                what = "a queue" if isinstance(node, QueueNode) else "an anycast address"
                text = f"{shown(name)} is {what}, no topic: choose another name for the topic, or"
                address = shown(parts_of(name)[0])
                message = f'{text} set routing = "multicast" for {address} in [broker] addresses'
                raise InvalidRequest(message)
            case _:
                return node

    def is_multicast(self, address: str) -> bool:
        """True if every queue on the address gets a message that is sent to it."""
        return self._routing_of(address) is Routing.MULTICAST

    def warn(self, ambiguous: Ambiguous, *, is_repeated: bool = True) -> None:
        """Name the candidates in the log; `is_repeated` False: unless they were named before.

        A client may send a million messages to an ambiguous name.
        """
        if self._is_first(ambiguous) or is_repeated:
            text = "%s is ambiguous, so it names no queue: say one of %s"
            _log.warning(text, shown(ambiguous.name), _listed(ambiguous.candidates))

    def log_once(self, text: str, *about: str) -> None:
        """Write a line about names to the log, unless it was written before."""
        if self._is_first((text, *about)):
            _log.info(text, *about)

    def _is_first(self, about: object) -> bool:
        """Note what a line of the log is about; True if none was about it so far."""
        if about in self._told:
            return False
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told.add(about)
        return True

    def on_demand(self, name: str) -> Queue:
        """The queue of this name that is created because a client attaches to it.

        Its address decides, not its own name: `orders.eu::late` is as the settings of `orders.eu`
        say.

        Raises:
            InvalidRequest: It is not created on demand.
        """
        reason = refusal_to_create(name, self.router)
        settings = self._settings.of(key_of(name).address)
        auto_create = self._auto_create if settings.auto_create is None else settings.auto_create
        if reason is None and not auto_create:
            reason = f"queue {shown(name)} does not exist (auto_create is off)"
        if reason is not None:
            raise InvalidRequest(reason)
        return _as_set(Queue(name), settings)

    def subscription(self, address: str, queue: Queue) -> Queue:
        """A queue on a multicast address, for one subscription, as the address has it."""
        return _as_set(queue, self._settings.of(address))

    def bound(self, key: ExchangeBindingKey) -> ExchangeBindingKey:
        """A configured binding, with its queue by what the store calls it.

        Raises:
            InvalidRequest: The short name is a queue's on several addresses.
        """
        resolved = self.addresses.resolve(key.queue)
        if isinstance(resolved, Ambiguous):
            several = _listed(resolved.candidates)
            message = f"binding of {shown(key.queue)} to {key.exchange!r}: say one of {several}"
            raise InvalidRequest(message)
        name = canonical(key.queue) if resolved is None else resolved.name
        return key._replace(queue=name)

    def _routing_of(self, address: str) -> Routing:
        """An address is multicast by the settings, as a topic, or by the subscriptions on it."""
        is_topic = is_temporary_topic(address) or self.addresses.has_subscription(address)
        return Routing.MULTICAST if is_topic else self._settings.of(address).routing


class _Matches:
    """The settings by the addresses they are for; the first that matches holds."""

    def __init__(self, settings: Sequence[AddressSettings]) -> None:
        self._settings = settings
        self._default = AddressSettings("#")
        self._patterns = TopicBindings()
        for number, setting in enumerate(settings):
            self._patterns.bind(setting.match, str(number))

    def of(self, address: str) -> AddressSettings:
        """The settings of an address."""
        if not self._settings:
            return self._default
        matching = self._patterns.route(address)
        return self._settings[min(map(int, matching))] if matching else self._default


def _as_set(queue: Queue, settings: AddressSettings) -> Queue:
    """Give a queue the arguments of its address, but not the queue that they name for dead letters.

    As a policy leaves that queue out (`core.policies`): dead letters would expire there.
    """
    is_left_out = target_of(settings.arguments) == queue.name
    return Queue(queue.name, queue.durability, {} if is_left_out else dict(settings.arguments))


def _listed(names: Sequence[str]) -> str:
    """Join some names for a line of the log."""
    most = 20
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more
