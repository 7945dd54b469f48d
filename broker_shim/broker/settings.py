"""Settings of the broker: `[broker]` of sparkstore.toml. Data only.

Wiring looks like this:

    queues = [{name = "orders", durability = "unsettled-state", arguments = {}}]
    queues = [{name = "late", arguments = {message_ttl_ms = 60000, dead_letter_queue = "dead"}}]
    exchanges = [{name = "news", type = "topic", arguments = {alternate_exchange = "amq.fanout"}}]
    bindings = [{exchange = "news", key = "sport.#", queue = "orders"}]
    bindings = [{exchange = "amq.match", queue = "eu", arguments = {x-match = "all", land = "eu"}}]
    addresses = [{match = "prices.#", routing = "multicast", auto_create = true, arguments = {}}]

A queue is named `address::queue`, or by a plain name: then its address has that name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from broker_shim.addressing.bindings import Routing
from broker_shim.broker.routing import EXCHANGE_TYPES
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.core.queue_arguments import QueueArguments, check_arguments
from sparkstore.core.queue_names import TEMPORARY, canonical, is_reserved
from sparkstore.core.wiring_arguments import check_exchange_arguments
from sparkstore.settings_file import check_names, read_section, told_of

NO_SETTINGS = frozenset({"max_message_bytes", "durable_messages", "binding_arguments"})
"""Fields of `BrokerSettings` that `[broker]` does not have."""

_MIB = 1 << 20
_TIERS = {tier.word: tier for tier in TerminusDurability}


class DurableMessages(StrEnum):
    """The broker's way with a message that is durable (AMQP 1.0 section 3.2.1).

    KEPT: as its queue keeps it. REJECTED: the store is in memory, and must not accept it.
    IN_MEMORY: the same, but somebody asked that it be accepted.
    """

    KEPT = "kept"
    REJECTED = "rejected"
    IN_MEMORY = "in-memory"


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings of addresses that match, and of queues made on demand on them.

    Attributes:
        match: An address; words with dots between, where `*` is one word and `#` any number.
        routing: Who gets what is sent to the address.
        auto_create: Attaching to an unknown queue creates it; None: as the broker's setting says.
        arguments: Of a queue that is created on demand.
    """

    match: str
    routing: Routing = Routing.ANYCAST
    auto_create: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


_RANGES = (
    ("credit", 1, 1_000_000),
    ("max_header_bytes", 1_024, 1 << 30),
    ("max_frame_bytes", 512, 1 << 30),
    ("max_links", 1, 1 << 20),
    ("max_unsettled", 1, 1 << 30),
    ("max_termini", 1, 1 << 30),
    ("max_termini_per_user", 1, 1 << 30),
    ("max_queues_per_user", 1, 1 << 30),
    ("max_sessions", 1, 65_535),
    ("max_connections", 1, 1 << 20),
    ("max_connections_per_user", 1, 1 << 20),
    ("max_half_open", 1, 1 << 20),
    ("max_transactions", 1, 1_000_000),
    ("max_transaction_operations", 1, 10_000_000),
    ("max_transaction_bytes", 1, 1 << 40),
    ("transaction_timeout_s", 1, 1 << 31),
    ("session_bytes", 1, 1 << 40),
    ("max_unfinished_bytes", 1, 1 << 40),
    ("max_unfinished_bytes_in_all", 1, 1 << 40),
    ("idle_timeout_s", 0.001, 1 << 22),
    ("handshake_timeout_s", 0.001, 1 << 22),
    ("buffered_bytes", 1, 1 << 40),
    ("probe_interval_s", 0.001, 1 << 22),
    ("stop_timeout_s", 0, 1 << 22),
)
"""Name, least, most: what the settings that are numbers may be."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How the broker serves.

    Attributes:
        auto_create: Attaching to an unknown queue creates it.
        queues: Created at start, durably; likewise exchanges and bindings.
        exchanges: Beside amq.direct, amq.fanout, amq.match and amq.topic.
        bindings: Of these queues to these exchanges.
        binding_arguments: Of those bindings that have any.
        addresses: Settings of addresses; the first that matches an address holds.
        temporary_queues: Who consumes from a queue that the broker made for a client: the
            "connection" that had it made, or any connection of its "user".
        credit: Messages one sending link may have under way, at least 1.
        max_message_bytes: A link that sends a larger one is detached. Set from the store's limit.
        durable_messages: What becomes of durable messages. Set from the command line.
        max_header_bytes: Of a message, all but its body, where an entry counts as 256 at least; a
            larger one is refused.
        max_frame_bytes: Largest frame we take, at least 512.
        session_bytes: How much of a session's incoming bytes may wait in memory.
        max_unfinished_bytes: Of messages that have not come whole, in memory, of one connection; at
            least one message of `max_message_bytes` may be.
        max_unfinished_bytes_in_all: The same of all connections; whoever has most gives it up.
        max_links: Links of one session.
        max_unsettled: Deliveries that one session was sent and has not settled, or a few more; then
            its credit is not used until it settles.
        max_termini: Links in all, attached or living on without a connection; more are refused.
        max_termini_per_user: Of one user; not where all are anonymous.
        max_queues_per_user: Queues and exchanges that one user had made since the start, of those
            that are there; anonymous clients are one user, administrators have no limit.
        max_sessions: Sessions of one connection, at most 65,535.
        max_connections: More are closed as they come.
        max_connections_per_user: Of one user; anonymous clients are one user.
        max_half_open: Connections that have not opened yet; more are closed as they come. A quarter
            of them may be one address', unless that is this machine.
        idle_timeout_s: A connection that is silent for so long is closed.
        handshake_timeout_s: A connection that has not opened after so long is closed.
        buffered_bytes: A session with more than this to write gets no further deliveries.
        max_transactions: Open transactions of one connection.
        max_transaction_operations: Messages sent and settled in one transaction.
        max_transaction_bytes: Of messages that wait in memory for commits of one connection.
        transaction_timeout_s: A transaction is rolled back so long after its first operation; a
            distributed one, or a member's at its service, so long after its begin, unless it is
            prepared.
        probe_interval_s: How often a link is given a message to try while the store is unavailable.
        stop_timeout_s: How long a clean stop waits for what is under way.
    """

    auto_create: bool = True
    queues: tuple[Queue, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    bindings: tuple[ExchangeBindingKey, ...] = ()
    binding_arguments: Mapping[ExchangeBindingKey, Mapping[str, Any]] = field(default_factory=dict)
    addresses: tuple[AddressSettings, ...] = ()
    temporary_queues: str = "connection"
    credit: int = 1000
    max_message_bytes: int = 128 * _MIB
    durable_messages: DurableMessages = DurableMessages.KEPT
    max_header_bytes: int = 256 * 1024
    max_frame_bytes: int = 32 * 1024
    session_bytes: int = 8 * _MIB
    max_unfinished_bytes: int = 256 * _MIB
    max_unfinished_bytes_in_all: int = 512 * _MIB
    max_links: int = 1024
    max_unsettled: int = 131_072
    max_termini: int = 100_000
    max_termini_per_user: int = 10_000
    max_queues_per_user: int = 1000
    max_sessions: int = 256
    max_connections: int = 1000
    max_connections_per_user: int = 1000
    max_half_open: int = 500
    idle_timeout_s: float = 60.0
    handshake_timeout_s: float = 10.0
    buffered_bytes: int = 4 * _MIB
    max_transactions: int = 256
    max_transaction_operations: int = 100_000
    max_transaction_bytes: int = 128 * _MIB
    transaction_timeout_s: float = 3600.0
    probe_interval_s: float = 0.25
    stop_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.temporary_queues not in {"connection", "user"}:
            message = f"[broker] temporary_queues is {self.temporary_queues!r}: connection or user"
            raise InvalidRequest(message)
        for name, least, most in _RANGES:
            if not least <= getattr(self, name) <= most:
                message = f"[broker] {name} is {getattr(self, name)}: from {least} to {most}"
                raise InvalidRequest(message)
        names = [*(queue.name for queue in self.queues), *(each.name for each in self.exchanges)]
        for name in filter(is_reserved, names):
            raise InvalidRequest(_reserved(name))
        for exchange in self.exchanges:
            if exchange.type not in EXCHANGE_TYPES:
                text = f"exchange {exchange.name!r}: type {exchange.type!r}"
                message = f"{text}: say one of {', '.join(EXCHANGE_TYPES)}"
                raise InvalidRequest(message)

    def with_wiring(
        self,
        queues: list[Queue],
        exchanges: list[Exchange],
        bindings: list[ExchangeBindingKey],
        addresses: Sequence[AddressSettings] = (),
    ) -> BrokerSettings:
        """The same with more to create at start; settings of addresses go before the others."""
        return replace(
            self,
            queues=(*self.queues, *queues),
            exchanges=(*self.exchanges, *exchanges),
            bindings=(*self.bindings, *bindings),
            addresses=(*addresses, *self.addresses),
        )


def read_settings(path: Path) -> BrokerSettings:
    """Settings from the `[broker]` table of a TOML file; what it leaves out has its default.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown setting, key or argument, or a value of
            the wrong type.
    """
    with told_of(path):
        values = read_section(path, "broker", BrokerSettings(), without=NO_SETTINGS)
        told = values.get("bindings", ())
        for name, make in _WIRING.items():
            if name in values:
                values[name] = tuple(make(item) for item in values[name])
        values["binding_arguments"] = {
            key: arguments
            for key, item in zip(values.get("bindings", ()), told, strict=True)
            if (arguments := _table(f"binding of {key.queue!r} to {key.exchange!r}", item))
        }
        return BrokerSettings(**values)


def _queue(item: Mapping[str, Any] | str) -> Queue:
    """A queue of the list: a table, or its name alone where all else is as usual."""
    item = {"name": item} if isinstance(item, str) else item
    _check_keys("queues", item, ("name", "durability", "arguments"))
    tier, name = _field(item, "durability", "unsettled-state"), canonical(_field(item, "name"))
    if tier not in _TIERS:
        message = f"[broker] queue {name!r}: durability {tier!r}: say one of {', '.join(_TIERS)}"
        raise InvalidRequest(message)
    return Queue(name, _TIERS[tier], _arguments(f"queue {name!r}", name, item))


def _exchange(item: Mapping[str, Any]) -> Exchange:
    _check_keys("exchanges", item, ("name", "type", "arguments"))
    name, kind = _field(item, "name"), _field(item, "type")
    arguments = _table(f"exchange {name!r}", item)
    check_exchange_arguments(name, arguments)
    return Exchange(name, kind, arguments=arguments)


def _binding(item: Mapping[str, Any]) -> ExchangeBindingKey:
    _check_keys("bindings", item, ("exchange", "key", "queue", "arguments"))
    return ExchangeBindingKey(
        _field(item, "exchange"), _field(item, "queue"), _field(item, "key", "")
    )


def _address(item: Mapping[str, Any]) -> AddressSettings:
    _check_keys("addresses", item, ("match", "routing", "auto_create", "arguments"))
    match, routing = _field(item, "match"), _field(item, "routing", "anycast")
    where = f"address {match!r}"
    if routing not in {*Routing}:
        message = f"[broker] {where}: routing {routing!r}: say one of {', '.join(Routing)}"
        raise InvalidRequest(message)
    auto_create = item.get("auto_create")
    if not (auto_create is None or isinstance(auto_create, bool)):
        message = f"[broker] {where}: auto_create is {auto_create!r}: say true or false"
        raise InvalidRequest(message)
    arguments = _arguments(where, match, item)
    return AddressSettings(match, Routing(routing), auto_create, arguments)


def _arguments(where: str, name: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of a queue; here only what the store acts on, as nobody else asks these queues."""
    arguments = _table(where, item)
    check_names(arguments, QueueArguments._fields, "argument", f"of {where}")
    check_arguments(name, arguments)
    target = arguments.get("dead_letter_queue")
    if target is not None and is_reserved(canonical(target)):
        raise InvalidRequest(_reserved(target))
    return arguments


def _table(where: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of an item."""
    arguments = item.get("arguments", {})
    if not isinstance(arguments, Mapping):
        message = f"[broker] {where}: arguments must be a table"
        raise InvalidRequest(message)
    return arguments


def _check_keys(where: str, item: object, known: Sequence[str]) -> None:
    """Refuse what an item of a list has too much; an argument of a queue belongs a level deeper."""
    if not isinstance(item, Mapping):
        return  # `_field` tells what it has to have
    for name in item:
        if name in QueueArguments._fields and name not in known and "arguments" in known:
            message = f"[broker] {where}: {name} belongs into arguments = {{{name} = …}}"
            raise InvalidRequest(message)
    check_names(item, known, "key", f"of [broker] {where}")


def _field(item: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = item.get(name, default) if isinstance(item, Mapping) else None
    if not isinstance(value, str) or (default is None and not value):
        message = f'[broker] {item!r} needs {name} = "…"'
        raise InvalidRequest(message)
    return value


def _reserved(name: str) -> str:
    text = f"{name!r} has the word {TEMPORARY!r}, which is kept for queues that the broker names"
    return f"{text}: choose another"


_WIRING: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "queues": _queue,
    "exchanges": _exchange,
    "bindings": _binding,
    "addresses": _address,
}
