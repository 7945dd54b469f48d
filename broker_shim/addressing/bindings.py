"""Bind queues to addresses, and find the queues that a name means. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from enum import StrEnum
from typing import NamedTuple

from broker_shim.addressing.fqqn import BindingKey, key_of, name_of, parse
from sparkstore.core.queue_names import is_subscription


class Routing(StrEnum):
    """The delivery of a message that is sent to an address: to one queue, or to all."""

    ANYCAST = "anycast"
    MULTICAST = "multicast"


class Binding(NamedTuple):
    """A queue bound to its address.

    Attributes:
        key: Address and name of the queue, which together name it once.
        name: What the store calls it, made once.
    """

    key: BindingKey
    name: str


class Ambiguous(NamedTuple):
    """A short name that several addresses have a queue of.

    Attributes:
        name: What was asked for.
        candidates: The queues, in full, sorted.
    """

    name: str
    candidates: tuple[str, ...]


class AddressManager:
    """Queues by address and by name.

    Invariants, after every call: `_addresses` has, for each queue's short name, the addresses of
    the keys in `_bindings`. `_names` has every text that means exactly one binding: what the store
    calls it, and its short name where that is not ambiguous. An ambiguous one is there from when
    it was asked for until one of its queues comes or goes. `_queues` has the bindings of each
    address; the one whose turn it is comes first. `_subscriptions` counts those among them that
    are a subscription's.
    """

    def __init__(self) -> None:
        self._bindings: dict[BindingKey, Binding] = {}
        self._addresses: dict[str, set[str]] = {}
        self._names: dict[str, Binding | Ambiguous] = {}
        self._queues: dict[str, OrderedDict[str, Binding]] = {}
        self._subscriptions = Counter[str]()

    def __contains__(self, address: object) -> bool:
        """True if a queue is on this address."""
        return address in self._queues

    def add(self, name: str) -> Binding:
        """Add a queue by what the store calls it; again changes nothing."""
        key = key_of(name)
        binding = self._bindings.get(key)
        if binding is not None:
            return binding
        binding = self._bindings[key] = self._names[name] = Binding(key, name)
        self._addresses.setdefault(key.queue, set()).add(key.address)
        self._queues.setdefault(key.address, OrderedDict())[key.queue] = binding
        self._subscriptions[key.address] += is_subscription(*key)
        self._settle(key.queue)
        return binding

    def remove(self, name: str) -> None:
        """Remove a queue; one that does not exist changes nothing."""
        key = key_of(name)
        if self._bindings.pop(key, None) is None:
            return
        del self._names[name]
        addresses, queues = self._addresses[key.queue], self._queues[key.address]
        addresses.discard(key.address)
        if not addresses:
            del self._addresses[key.queue]
        del queues[key.queue]
        self._subscriptions[key.address] -= is_subscription(*key)
        if not queues:
            del self._queues[key.address], self._subscriptions[key.address]
        self._settle(key.queue)

    def resolve(self, name: str) -> Binding | Ambiguous | None:
        """The queue that a name means.

        Raises:
            InvalidRequest: It is neither a short name nor address::queue, nor a queue's.
        """
        return self._names.get(name) or self._look(name)

    def has_subscription(self, address: str) -> bool:
        """True if a subscription's queue is on this address."""
        return self._subscriptions[address] > 0

    def on(self, address: str) -> tuple[Binding, ...]:
        """The queues on an address."""
        return tuple(self._queues.get(address, {}).values())

    def route(self, address: str, routing: Routing) -> tuple[str, ...]:
        """Return the store's names of the queues that the next message to an address goes to.

        Multicast: all of them. Anycast: the one of the address's own name; if there is none, they
        take turns. Empty: there is none, and the message must be refused.
        """
        queues = self._queues.get(address)
        if queues is None:
            return ()
        if routing is Routing.MULTICAST:
            return tuple(binding.name for binding in queues.values())
        chosen = queues.get(address)
        if chosen is None:
            chosen = next(iter(queues.values()))
            queues.move_to_end(chosen.key.queue)
        return (chosen.name,)

    def _settle(self, queue: str) -> None:
        """Work out anew what a short name means; who has an ambiguous one, when it is asked for."""
        addresses = self._addresses.get(queue, ())
        if queue in addresses:
            self._names[queue] = self._bindings[BindingKey(queue, queue)]
        elif len(addresses) == 1:
            (address,) = addresses
            self._names[queue] = self._bindings[BindingKey(address, queue)]
        else:
            self._names.pop(queue, None)

    def _look(self, name: str) -> Binding | Ambiguous | None:
        """Find a name that `_names` lacks: an ambiguous one, q::q for the queue q, or none."""
        addresses = self._addresses.get(name)
        if addresses is not None:
            keys = sorted(BindingKey(address, name) for address in addresses)
            ambiguous = self._names[name] = Ambiguous(name, tuple(name_of(key) for key in keys))
            return ambiguous
        key = parse(name)
        return None if key is None else self._bindings.get(key)
