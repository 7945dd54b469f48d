"""Which queues a message goes to: direct, fanout and topic exchanges. Pure."""

from __future__ import annotations

from typing import Protocol

from broker_shim.addressing.topics import TopicBindings
from broker_shim.errors import InvalidRequest
from sparkstore.core.records import ExchangeBindingKey

DEFAULT_EXCHANGES = {"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic"}
"""Exchanges of every broker, by name: their type."""


class Bindings(Protocol):
    """The bindings of one exchange. A queue is in the answer once, however many keys fit."""

    def bind(self, binding_key: str, queue: str) -> None:
        """Add a binding; again changes nothing."""

    def unbind(self, binding_key: str, queue: str) -> None:
        """Take a binding away; one that is not there changes nothing."""

    def route(self, routing_key: str) -> set[str]:
        """Names of the queues that a message with this routing key goes to."""


class DirectBindings:
    """The routing key is the binding key."""

    def __init__(self) -> None:
        self._queues: dict[str, set[str]] = {}

    def bind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`."""
        self._queues.setdefault(binding_key, set()).add(queue)

    def unbind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`."""
        queues = self._queues.get(binding_key, set())
        queues.discard(queue)
        if not queues:
            self._queues.pop(binding_key, None)

    def route(self, routing_key: str) -> set[str]:
        """See `Bindings`."""
        return set(self._queues.get(routing_key, ()))


class FanoutBindings:
    """Every queue, whatever the routing key."""

    def __init__(self) -> None:
        self._bindings: set[tuple[str, str]] = set()

    def bind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`."""
        self._bindings.add((binding_key, queue))

    def unbind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`."""
        self._bindings.discard((binding_key, queue))

    def route(self, routing_key: str) -> set[str]:  # noqa: ARG002  # the protocol's name
        """See `Bindings`."""
        return {queue for _key, queue in self._bindings}


_KINDS: dict[str, type[DirectBindings | FanoutBindings | TopicBindings]] = {
    "direct": DirectBindings,
    "fanout": FanoutBindings,
    "topic": TopicBindings,
}
EXCHANGE_TYPES = tuple(_KINDS)


class Router:
    """The exchanges of a broker and what is bound to them."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Bindings] = {}
        self._kinds: dict[str, str] = {}
        self._keys: dict[str, set[tuple[str, str]]] = {}

    def __contains__(self, exchange: object) -> bool:
        """True if there is such an exchange."""
        return exchange in self._exchanges

    def add_exchange(self, name: str, kind: str) -> None:
        """Add an exchange; one that is there keeps its bindings.

        Raises:
            InvalidRequest: There is no such type of exchange.
        """
        if kind not in _KINDS:
            message = f"exchange {name!r}: type {kind!r} is not one of {', '.join(_KINDS)}"
            raise InvalidRequest(message)
        self._exchanges.setdefault(name, _KINDS[kind]())
        self._kinds.setdefault(name, kind)

    def remove_exchange(self, name: str) -> None:
        """Take an exchange and its bindings away; one that is not there changes nothing."""
        self._exchanges.pop(name, None)
        self._kinds.pop(name, None)
        for queue, keys in [*self._keys.items()]:
            left = {each for each in keys if each[0] != name}
            if left:
                self._keys[queue] = left
            else:
                del self._keys[queue]

    def type_of(self, exchange: str) -> str | None:
        """Type of an exchange; None: there is none."""
        return self._kinds.get(exchange)

    def bindings(self) -> set[ExchangeBindingKey]:
        """All bindings."""
        return {
            ExchangeBindingKey(exchange, queue, key)
            for queue, keys in self._keys.items()
            for exchange, key in keys
        }

    def needs_key(self, exchange: str) -> bool:
        """True if a subscription to this exchange must say which routing key it wants."""
        return self._kinds.get(exchange) == "direct"

    def reads_words(self, exchange: str) -> bool:
        """True if a routing key costs this exchange more the more words it has."""
        return self._kinds.get(exchange) == "topic"

    def bind(self, exchange: str, binding_key: str, queue: str) -> None:
        """Bind a queue to an exchange; one that is gone meanwhile changes nothing."""
        if exchange not in self._exchanges:
            return
        self._exchanges[exchange].bind(binding_key, queue)
        self._keys.setdefault(queue, set()).add((exchange, binding_key))

    def unbind(self, exchange: str, binding_key: str, queue: str) -> None:
        """Take a binding away; one that is not there changes nothing."""
        if exchange not in self._exchanges:
            return
        self._exchanges[exchange].unbind(binding_key, queue)
        self._keys.get(queue, set()).discard((exchange, binding_key))

    def unbind_queue(self, queue: str) -> None:
        """Take all bindings of a queue away."""
        for exchange, key in self._keys.pop(queue, set()):
            self._exchanges[exchange].unbind(key, queue)

    def route(self, exchange: str, routing_key: str) -> set[str]:
        """Names of the queues for a message; none if there is no such exchange."""
        bindings = self._exchanges.get(exchange)
        return bindings.route(routing_key) if bindings is not None else set()
