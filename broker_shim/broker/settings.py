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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from broker_shim.addressing.bindings import Routing
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.core.policies import Policy
from sparkstore.core.queue_arguments import QueueArguments, check_arguments
from sparkstore.core.queue_names import TEMPORARY, canonical, is_reserved
from sparkstore.core.wiring_arguments import check_exchange_arguments, check_exchange_type
from sparkstore.declared_settings import MIB, Bounds, NotRead, Seconds, check_declared
from sparkstore.operations.policy_orders import MOST_PRIORITY, check_policy
from sparkstore.settings_file import check_names, named_section, read_row, read_section

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

    PLACE: ClassVar[str] = "[broker] addresses:"

    match: Annotated[str, Bounds(is_needed=True)]
    routing: Routing = Routing.ANYCAST
    auto_create: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _QueueRow:
    """A queue of the settings; or its name alone, where all else is as usual."""

    PLACE: ClassVar[str] = "[broker] queues:"

    name: Annotated[str, Bounds(is_needed=True)]
    durability: Annotated[str, Bounds(words=tuple(_TIERS))] = "unsettled-state"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ExchangeRow:
    """An exchange of the settings."""

    PLACE: ClassVar[str] = "[broker] exchanges:"

    name: Annotated[str, Bounds(is_needed=True)]
    type: Annotated[str, Bounds(is_needed=True)]
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _BindingRow:
    """A binding of the settings."""

    PLACE: ClassVar[str] = "[broker] bindings:"

    exchange: Annotated[str, Bounds(is_needed=True)]
    queue: Annotated[str, Bounds(is_needed=True)]
    key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _PolicyRow:
    """A policy of the settings."""

    PLACE: ClassVar[str] = "[broker] policies:"

    name: Annotated[str, Bounds(is_needed=True)]
    match: Annotated[str, Bounds(is_needed=True)]
    priority: Annotated[int, Bounds(-MOST_PRIORITY, MOST_PRIORITY)] = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)


_Count = Annotated[int, Bounds(1, 1 << 30)]
_Links = Annotated[int, Bounds(1, 1 << 20)]
_Bytes = Annotated[int, Bounds(1, 1 << 40)]
_Pause = Annotated[float, Bounds(0.001, 1 << 22)]


@named_section
@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of the embedded broker (sparkstore serve).

    Attributes:
        auto_create: Attaching to an unknown queue creates it.
        queues: Queues created at start, durably, if they are not there. A name alone is a queue
            with all defaults; durability is "none", "configuration" or "unsettled-state" (default).
            Any argument but these is an error:

              {arguments}

            A running broker ends what it would hand out or has just been given back; `sparkstore
            compact` ends the rest. For example:

              queues = ["bills", {name = "orders", durability = "unsettled-state"}]
              queues = [{name = "orders",
                         arguments = {max_delivery_count = 5, dead_letter_queue = "dead"}}]

        exchanges: Exchanges created at start, durably; amq.direct, amq.fanout, amq.match and
            amq.topic always are there. For example:

              exchanges = [{name = "news", type = "topic"}]

        bindings: Bindings of these queues to these exchanges, created at start. For example:

              bindings = [{exchange = "news", key = "sport.#", queue = "orders"}]

        binding_arguments: Arguments of those bindings that have any.
        addresses: Settings of addresses. The first that matches an address holds, also for each
            queue on it (address::queue), whatever the queue's own name is. `*` is one word of an
            address, `#` any number.

              routing             what is sent to the address goes to all its queues ("multicast"),
                                  or to one ("anycast", default): the queue of its own name, else
                                  they take turns
              auto_create         instead of the setting above, for queues on these addresses
              arguments           of a queue that is created on demand on these addresses

            For example:

              addresses = [{match = "prices.#", routing = "multicast",
                            arguments = {message_ttl_ms = 60000}}]

        policies: Arguments for all queues on addresses that fit a pattern, those there are and
            those that come, set at start. What a queue says itself wins, then the highest priority.
            For example:

              policies = [{name = "eu", match = "orders.eu.#", priority = 10,
                           arguments = {max_depth = 100000}}]

        temporary_queues: Who consumes from a queue that the broker makes and names for a client,
            for answers: the "connection" that had it made alone, or any connection of its "user".
        credit: Messages that one sending link may have under way.
        max_message_bytes: A link that sends a larger one is detached. Set from the store's limit.
        durable_messages: What becomes of durable messages. Set from the command line.
        max_header_bytes: A message with more around its body (header, annotations, properties,
            footer) is refused; each entry of its maps counts as 256 bytes at least.
        max_frame_bytes: Largest frame that is accepted.
        session_bytes: How much of a session's incoming bytes may wait in memory.
        max_unfinished_bytes: Memory for messages of one connection that have not come whole, and at
            least for one of the largest size; a link that begins more is detached. Content of large
            durable messages is in the store meanwhile and does not count.
        max_unfinished_bytes_in_all: The same of all connections together; beyond it the connection
            with the most loses the link with the most.
        max_links: Links of one session.
        max_unsettled: Deliveries that one session may leave unsettled: it is sent no more until it
            settles some.
        max_termini: Links in all, attached or living on without a connection: a client that makes
            durable links under ever new names is refused beyond it. A link is about 1 KiB of
            memory, and at most as much as its attach, which is one frame.
        max_termini_per_user: The same of one user, for brokers that tell users apart: clients
            without a name are one user there.
        max_queues_per_user: Queues and exchanges, temporary ones too, that one user had made since
            the start of this process and that are there now. Anonymous clients are one user; orders
            by the control socket have no limit.
        unused_queue_s: A queue that was made because a client attached to it is deleted when it has
            been empty, unbound and without a client for so long; 0: it stays. What was created by
            an order or is named here stays, as does what was there at the start of this process.
        max_sessions: Sessions of one connection.
        max_connections: Connections in all; more are closed as they come. The HTTP port has as
            many, counted apart.
        max_connections_per_user: Connections of one user; anonymous clients are one user.
        max_half_open: Connections that have not opened yet: their handshake is under way, or the
            answer to a failed login waits. Beyond it the oldest one is closed, or the newcomer. A
            quarter of them may be one address', unless that is this machine.
        idle_timeout_s: A connection that is silent for so long is closed.
        handshake_timeout_s: A connection that has not opened after so long is closed.
        buffered_bytes: A session with more than this to write gets no further deliveries.
        max_transactions: Open transactions of one connection.
        max_transaction_operations: Messages sent and settled in one transaction.
        max_transaction_bytes: Bytes of messages that wait in memory for commits of one connection.
        transaction_timeout_s: A transaction is rolled back so long after its first operation. A
            distributed one, or a member's, is rolled back so long after its begin, unless it is
            prepared.
        probe_interval_s: How often a link is given a message to try while the store is unavailable.
        stop_timeout_s: How long a clean stop waits for what is under way.
    """

    PLACE: ClassVar[str] = "[broker]"

    auto_create: bool = True
    queues: tuple[Queue, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    bindings: tuple[ExchangeBindingKey, ...] = ()
    binding_arguments: Annotated[Mapping[ExchangeBindingKey, Mapping[str, Any]], NotRead] = field(
        default_factory=dict
    )
    addresses: tuple[AddressSettings, ...] = ()
    policies: tuple[Policy, ...] = ()
    temporary_queues: Annotated[str, Bounds(words=("connection", "user"))] = "connection"
    credit: Annotated[int, Bounds(1, 1_000_000)] = 1000
    max_message_bytes: Annotated[int, NotRead] = 128 * MIB
    durable_messages: Annotated[DurableMessages, NotRead] = DurableMessages.KEPT
    max_header_bytes: Annotated[int, Bounds(1_024, 1 << 30)] = 256 * 1024
    max_frame_bytes: Annotated[int, Bounds(512, 1 << 30)] = 32 * 1024
    session_bytes: _Bytes = 8 * MIB
    max_unfinished_bytes: _Bytes = 256 * MIB
    max_unfinished_bytes_in_all: _Bytes = 512 * MIB
    max_links: _Links = 1024
    max_unsettled: _Count = 131_072
    max_termini: _Count = 100_000
    max_termini_per_user: _Count = 10_000
    max_queues_per_user: _Count = 1000
    unused_queue_s: Seconds = 300.0
    max_sessions: Annotated[int, Bounds(1, 65_535)] = 256
    max_connections: _Links = 1000
    max_connections_per_user: _Links = 1000
    max_half_open: _Links = 500
    idle_timeout_s: _Pause = 60.0
    handshake_timeout_s: _Pause = 10.0
    buffered_bytes: _Bytes = 4 * MIB
    max_transactions: Annotated[int, Bounds(1, 1_000_000)] = 256
    max_transaction_operations: Annotated[int, Bounds(1, 10_000_000)] = 100_000
    max_transaction_bytes: _Bytes = 128 * MIB
    transaction_timeout_s: Annotated[float, Bounds(1, 1 << 31)] = 3600.0
    probe_interval_s: _Pause = 0.25
    stop_timeout_s: Annotated[float, Bounds(0, 1 << 22)] = 10.0

    def __post_init__(self) -> None:
        check_declared(self, self.PLACE)
        names = [*(queue.name for queue in self.queues), *(row.name for row in self.exchanges)]
        for name in filter(is_reserved, names):
            raise InvalidRequest(_reserved(name))
        for exchange in self.exchanges:
            check_exchange_type(exchange.name, exchange.type)

    def with_wiring(
        self,
        queues: list[Queue],
        exchanges: list[Exchange],
        bindings: list[ExchangeBindingKey],
        addresses: Sequence[AddressSettings] = (),
    ) -> BrokerSettings:
        """Return settings with more to create at start; those of addresses go before the others."""
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
    return read_section(path, BrokerSettings, _with_binding_arguments, _ROWS)


def _with_binding_arguments(
    *, bindings: Sequence[_BindingRow] = (), **values: Any
) -> BrokerSettings:
    keys = [ExchangeBindingKey(row.exchange, row.queue, row.key) for row in bindings]
    arguments = {
        key: row.arguments for key, row in zip(keys, bindings, strict=True) if row.arguments
    }
    return BrokerSettings(bindings=tuple(keys), binding_arguments=arguments, **values)


def _queue(item: Mapping[str, Any] | str) -> Queue:
    item = {"name": item} if isinstance(item, str) else item
    row = read_row(item, _QueueRow, QueueArguments._fields)
    name = canonical(row.name)
    _check_arguments(f"queue {name!r}", name, row.arguments)
    return Queue(name, _TIERS[row.durability], row.arguments)


def _exchange(item: object) -> Exchange:
    row = read_row(item, _ExchangeRow, QueueArguments._fields)
    check_exchange_arguments(row.name, row.arguments)
    return Exchange(row.name, row.type, arguments=row.arguments)


def _binding(item: object) -> _BindingRow:
    return read_row(item, _BindingRow, QueueArguments._fields)


def _address(item: object) -> AddressSettings:
    row = read_row(item, AddressSettings, QueueArguments._fields)
    _check_arguments(f"address {row.match!r}", row.match, row.arguments)
    return row


def _policy(item: object) -> Policy:
    row = read_row(item, _PolicyRow, QueueArguments._fields)
    check_policy(policy := Policy(row.name, row.match, row.priority, row.arguments))
    return policy


def _check_arguments(where: str, name: str, arguments: Mapping[str, Any]) -> None:
    """Check arguments of a queue; only what the store acts on, as nobody else asks these queues."""
    check_names(arguments, QueueArguments._fields, "argument", f"of {where}")
    check_arguments(name, arguments)
    target = arguments.get("dead_letter_queue")
    if target is not None and is_reserved(canonical(target)):
        raise InvalidRequest(_reserved(target))


def _reserved(name: str) -> str:
    text = f"{name!r} has the word {TEMPORARY!r}, which is kept for queues that the broker names"
    return f"{text}: choose another"


_ROWS = {
    "queues": _queue,
    "exchanges": _exchange,
    "bindings": _binding,
    "addresses": _address,
    "policies": _policy,
}
