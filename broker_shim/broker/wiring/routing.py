"""The routing of messages to queues: direct, fanout, topic and headers exchanges. Pure.

A message that goes to no queue of an exchange goes where the exchange's alternate routes it, if it
has one, and so on. A message is routed by no exchange twice: exchanges that are each other's
alternates end there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker_shim.addressing.topics import TopicBindings
from broker_shim.broker.wiring.headers_exchange import Get, HeadersBindings
from sparkstore.core.records import ExchangeBindingKey
from sparkstore.core.state_machine.call_values import Exchange
from sparkstore.core.wiring_arguments import (
    HEADERS,
    alternate_of,
    check_exchange_type,
    deletes_itself,
)

DEFAULT_EXCHANGES = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.match": "headers",
    "amq.topic": "topic",
}
"""Exchanges of every broker, by name: their type."""


class DirectBindings:
    """The bindings of a direct exchange: the routing key is the binding key."""

    def __init__(self) -> None:
        self._queues: dict[str, set[str]] = {}

    def bind(self, binding_key: str, queue: str) -> None:
        """Bind a queue under exactly this key; again changes nothing."""
        self._queues.setdefault(binding_key, set()).add(queue)

    def unbind(self, binding_key: str, queue: str) -> None:
        """Remove a queue's binding under this key; one that is not there changes nothing."""
        queues = self._queues.get(binding_key, set())
        queues.discard(queue)
        if not queues:
            self._queues.pop(binding_key, None)

    def route(self, routing_key: str) -> set[str]:
        """Find the queues that are bound with exactly this key."""
        return set(self._queues.get(routing_key, ()))


class FanoutBindings:
    """The bindings of a fanout exchange: every queue, whatever the routing key."""

    def __init__(self) -> None:
        self._bindings: set[tuple[str, str]] = set()

    def bind(self, binding_key: str, queue: str) -> None:
        """Bind a queue, whatever its key is; again changes nothing."""
        self._bindings.add((binding_key, queue))

    def unbind(self, binding_key: str, queue: str) -> None:
        """Remove one binding of a queue; one that is not there changes nothing."""
        self._bindings.discard((binding_key, queue))

    def route(self, routing_key: str) -> set[str]:  # noqa: ARG002  # the protocol's name
        """Find all queues that are bound, each once, whatever the key is."""
        return {queue for _key, queue in self._bindings}


_Bindings = DirectBindings | FanoutBindings | TopicBindings | HeadersBindings
_KINDS: dict[str, type[_Bindings]] = {
    "direct": DirectBindings,
    "fanout": FanoutBindings,
    "topic": TopicBindings,
    HEADERS: HeadersBindings,
}


def _no_header(_name: str) -> None:
    return None


def _no_deletion(_exchange: str) -> None:
    """Delete no exchange: nothing deletes them by themselves."""


class Router:
    """The exchanges of a broker and what is bound to them.

    Attributes:
        on_unused: Called with an exchange that deletes itself, when its last binding is gone.
    """

    def __init__(self) -> None:
        self.on_unused: Callable[[str], None] = _no_deletion
        self._exchanges: dict[str, _Bindings] = {}
        self._definitions: dict[str, Exchange] = {}
        self._alternates: dict[str, str] = {}  # of those that have one, for each message
        self._keys: dict[str, set[tuple[str, str]]] = {}
        self._arguments: dict[ExchangeBindingKey, Mapping[str, Any]] = {}

    def __contains__(self, exchange: object) -> bool:
        """True if there is such an exchange."""
        return exchange in self._exchanges

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange; one that is there stays as it is, with its bindings.

        Raises:
            InvalidRequest: There is no such type of exchange.
        """
        name, kind = exchange.name, exchange.type
        check_exchange_type(name, kind)
        if name not in self._exchanges:
            self._exchanges[name] = _KINDS[kind]()
            self._definitions[name] = exchange
            if (alternate := alternate_of(exchange.arguments)) is not None:
                self._alternates[name] = alternate

    def remove_exchange(self, name: str) -> None:
        """Take an exchange and its bindings away; one that is not there changes nothing."""
        self._exchanges.pop(name, None)
        self._definitions.pop(name, None)
        self._alternates.pop(name, None)
        for key in [key for key in self._arguments if key.exchange == name]:
            del self._arguments[key]
        for queue, keys in [*self._keys.items()]:
            left = {key for key in keys if key[0] != name}
            if left:
                self._keys[queue] = left
            else:
                del self._keys[queue]

    @property
    def definitions(self) -> Mapping[str, Exchange]:
        """All exchanges, by their names."""
        return self._definitions

    def type_of(self, exchange: str) -> str | None:
        """Get the type of an exchange; None: there is none."""
        definition = self._definitions.get(exchange)
        return None if definition is None else definition.type

    def alternate_of(self, exchange: str) -> str | None:
        """The exchange that gets what goes to no queue of this one; None: nobody does."""
        return self._alternates.get(exchange)

    def with_alternate(self, alternate: str) -> list[str]:
        """The exchanges whose alternate one is."""
        return [name for name, other in self._alternates.items() if other == alternate]

    def arguments_of(self, key: ExchangeBindingKey) -> Mapping[str, Any]:
        """The arguments of a binding; none if it is not there."""
        return self._arguments.get(key, {})

    def bindings(self) -> set[ExchangeBindingKey]:
        """List the bindings of all exchanges."""
        return {key for queue in self._keys for key in self.bindings_of(queue)}

    def bindings_of(self, queue: str) -> list[ExchangeBindingKey]:
        """List the bindings of one queue, in no order."""
        return [
            ExchangeBindingKey(exchange, queue, key) for exchange, key in self._keys.get(queue, ())
        ]

    def needs_key(self, exchange: str) -> bool:
        """True if a subscription to this exchange must say which routing key it wants."""
        return self.type_of(exchange) == "direct"

    def reads_words(self, exchange: str) -> bool:
        """True if a routing key costs this exchange more the more words it has."""
        return self.type_of(exchange) == "topic"

    def bind(
        self,
        exchange: str,
        binding_key: str,
        queue: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Bind a queue to an exchange; one that is gone meanwhile changes nothing."""
        bindings = self._exchanges.get(exchange)
        if bindings is None:
            return
        if isinstance(bindings, HeadersBindings):
            bindings.bind(binding_key, queue, arguments or {})
        else:
            bindings.bind(binding_key, queue)
        self._keys.setdefault(queue, set()).add((exchange, binding_key))
        if arguments:
            self._arguments[ExchangeBindingKey(exchange, queue, binding_key)] = arguments

    def unbind(self, exchange: str, binding_key: str, queue: str) -> None:
        """Take a binding away; one that is not there changes nothing."""
        if exchange not in self._exchanges:
            return
        self._exchanges[exchange].unbind(binding_key, queue)
        keys = self._keys.get(queue, set())
        was_bound = (exchange, binding_key) in keys
        keys.discard((exchange, binding_key))
        self._arguments.pop(ExchangeBindingKey(exchange, queue, binding_key), None)
        if was_bound:
            self._unbound(exchange)

    def unbind_queue(self, queue: str) -> None:
        """Take all bindings of a queue away."""
        keys = self._keys.pop(queue, set())
        for exchange, key in keys:
            self._exchanges[exchange].unbind(key, queue)
            self._arguments.pop(ExchangeBindingKey(exchange, queue, key), None)
        for exchange in {exchange for exchange, _key in keys}:
            self._unbound(exchange)

    def _unbound(self, exchange: str) -> None:
        """Tell of an exchange that deletes itself, if this was its last binding."""
        if deletes_itself(self._definitions[exchange].arguments) and not any(
            exchange == other for keys in self._keys.values() for other, _key in keys
        ):
            self.on_unused(exchange)

    def route(self, exchange: str, routing_key: str, get: Get = _no_header) -> set[str]:
        """Names of the queues for a message; none if there is no such exchange.

        Args:
            exchange: Name of the exchange that it was sent to.
            routing_key: What the message was sent with, or its subject.
            get: Tells its application properties.
        """
        queues = self._bound(exchange, routing_key, get)
        if queues or not self._alternates:
            return queues
        seen = {exchange}
        while not queues:
            alternate = self._alternates.get(exchange)
            if alternate is None or alternate in seen:
                break
            seen.add(alternate)
            exchange = alternate
            queues = self._bound(exchange, routing_key, get)
        return queues

    def _bound(self, exchange: str, routing_key: str, get: Get) -> set[str]:
        bindings = self._exchanges.get(exchange)
        if bindings is None:
            return set()
        if isinstance(bindings, HeadersBindings):
            return bindings.route(get)
        return bindings.route(routing_key)
