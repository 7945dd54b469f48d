"""Which queues a message goes to: direct, fanout and topic exchanges. Pure.

Topic patterns are words with dots between: `*` is one word, `#` any number of words, none too.
They are kept as a tree of words, so a message costs the words of its routing key times the
patterns that still fit, not the number of bindings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from broker_shim.errors import InvalidRequest

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


@dataclass(slots=True)
class _Node:
    """One word of some patterns: what follows it, and the queues of a pattern that ends here."""

    is_hash: bool = False
    children: dict[str, _Node] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)


class TopicBindings:
    """Patterns of words."""

    def __init__(self) -> None:
        self._root = _Node()

    def bind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`."""
        node = self._root
        for word in binding_key.split("."):
            node = node.children.setdefault(word, _Node(is_hash=word == "#"))
        node.queues.add(queue)

    def unbind(self, binding_key: str, queue: str) -> None:
        """See `Bindings`; branches that end in nothing are cut."""
        path = [self._root]
        words = binding_key.split(".")
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return
            path.append(child)
        path[-1].queues.discard(queue)
        for word, parent in zip(reversed(words), reversed(path[:-1]), strict=True):
            child = parent.children[word]
            if child.children or child.queues:
                return
            del parent.children[word]

    def route(self, routing_key: str) -> set[str]:
        """See `Bindings`.

        All patterns are followed at once, word by word, as the set of nodes they have come to. A
        node is followed once a word, so the cost is at most words × nodes: no pattern such as
        `#.#.#` makes it grow faster.
        """
        here = _with_nothing_for_hashes([self._root])
        for word in routing_key.split("."):
            following = []
            for node in here:
                if node.is_hash:
                    following.append(node)
                following += [
                    node.children[step] for step in {word, "*"} - {"#"} if step in node.children
                ]
            here = _with_nothing_for_hashes(following)
        return set().union(*(node.queues for node in here))


def _with_nothing_for_hashes(nodes: list[_Node]) -> list[_Node]:
    """The nodes, and what comes after each `#` that takes no word; each once."""
    found = {id(node): node for node in nodes}
    unseen = list(found.values())
    while unseen:
        child = unseen.pop().children.get("#")
        if child is not None and id(child) not in found:
            found[id(child)] = child
            unseen.append(child)
    return list(found.values())


_KINDS: dict[str, type[DirectBindings | FanoutBindings | TopicBindings]] = {
    "direct": DirectBindings,
    "fanout": FanoutBindings,
    "topic": TopicBindings,
}


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

    def needs_key(self, exchange: str) -> bool:
        """True if a subscription to this exchange must say which routing key it wants."""
        return self._kinds.get(exchange) == "direct"

    def bind(self, exchange: str, binding_key: str, queue: str) -> None:
        """Bind a queue to an exchange that is there."""
        self._exchanges[exchange].bind(binding_key, queue)
        self._keys.setdefault(queue, set()).add((exchange, binding_key))

    def unbind(self, exchange: str, binding_key: str, queue: str) -> None:
        """Take a binding of an exchange that is there away."""
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
