"""The connections of each container, where one of them asked to be the only one.

The capability `sole-connection-for-container` (AMQP Sole Connection, a committee's extension): who
opens a connection with it desires that its container have no other. A connection that comes while
there is one is refused, or ends the one that is there, as the one that is there asked, else as the
newer one asks. Two connections of one container id are legal while none asks.

Decision: the policy of the connection that is there holds. Who asked that others be refused was
told so, and may count on it: a newcomer that asks for the opposite does not end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_shim.amqp_1_0.composites import Open
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.amqp_1_0.primitives import Symbol, UInt
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.protocol_1_0.connection import ServerConnection
from broker_shim.sockets.served_connection import ClientFacts, product_of

if TYPE_CHECKING:
    from broker_shim.listener_1_0.connections.connection import Connection

SOLE = "sole-connection-for-container"
_ENFORCEMENT = "sole-connection-enforcement-policy"

_DETECTION = {Symbol("sole-connection-detection-policy"): UInt(0)}
"""No second connection is overlooked (strong), whether or not the first one asked."""

_NOT_ESTABLISHED = {Symbol("amqp:connection-establishment-failed"): True}
"""For an open that is followed by a close: its peer need not take it for opened."""

REFUSED = Refusal(
    AmqpError.INVALID_FIELD,
    "a connection of this container id asked to be the only one, or there is one: close it first",
    {"invalid-field": Symbol("container-id")},
)
TAKEN_OVER = Refusal(
    AmqpError.RESOURCE_LOCKED,
    "another connection of this container id asked to be the only one",
    {"sole-connection-enforcement": True},
)


class Enforcement(IntEnum):
    """The fate of two connections of which one is to be the only one."""

    REFUSE_CONNECTION = 0
    CLOSE_EXISTING = 1


class OpenOutcome(NamedTuple):
    """The outcome of an open of a container.

    Attributes:
        refusal: Why the connection may not be; None if it may.
        to_close: Others, which may be no longer.
    """

    refusal: Refusal | None = None
    to_close: tuple[Connection, ...] = ()


def asked(remote: Open) -> Enforcement | None:
    """Read what an open asks to enforce; None if it does not ask to be the only one."""
    if SOLE not in (remote.desired_capabilities or ()):
        return None
    properties: Mapping[Any, Any] = remote.properties or {}
    is_close = properties.get(_ENFORCEMENT) == Enforcement.CLOSE_EXISTING
    return Enforcement.CLOSE_EXISTING if is_close else Enforcement.REFUSE_CONNECTION


def answered(policy: Enforcement | None, refusal: Refusal | None) -> dict[Symbol, Any]:
    """Return the properties of our open: how others are detected, and what was asked, in force.

    Args:
        policy: What the peer's open asks (`asked`).
        refusal: Why the connection may not be; None if it may.
    """
    if refusal is not None:
        return _NOT_ESTABLISHED
    if policy is None:
        return _DETECTION
    return {**_DETECTION, Symbol(_ENFORCEMENT): UInt(policy)}


class Containers:
    """The open connections of each container, with what they asked. On the loop's thread only."""

    def __init__(self) -> None:
        self._open: dict[str, dict[Connection, Enforcement | None]] = {}

    def enter(self, connection: Connection, policy: Enforcement | None) -> OpenOutcome:
        """Let a connection open; unless it is refused, call `leave` when it is gone."""
        others = self._open.get(connection.container, {})
        policies = [*others.values(), policy] if others else []
        enforced = next((rule for rule in policies if rule is not None), None)
        if enforced is Enforcement.REFUSE_CONNECTION:
            return OpenOutcome(REFUSED)
        to_close = () if enforced is None else tuple(others)
        self._open.setdefault(connection.container, {})[connection] = policy
        return OpenOutcome(None, to_close)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is gone, or never entered."""
        left = self._open.get(connection.container, {})
        left.pop(connection, None)
        if not left:
            self._open.pop(connection.container, None)


def client_of(machine: ServerConnection) -> ClientFacts:
    """Describe the client of a connection by what its open told, and how much came and went."""
    remote = machine.remote
    timeout_ms = remote.idle_time_out if remote else None
    return ClientFacts(
        "AMQP 1.0",
        product_of(remote.properties if remote else None),
        machine.session_count,
        timeout_ms / 1_000 if timeout_ms else None,
        machine.received_bytes,
        machine.handed_bytes,
    )
