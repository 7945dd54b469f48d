"""Define the events of a connection, which its caller gets in the order in which they happened.

What the peer began or ended has to be answered, where its event says so. Of what *we* ended because
the peer broke the protocol (`…Failed`) the peer was told already. When a session or the connection
ends, its links and sessions are gone with it, without an event for each.

A connection gathers events and `ServerConnection.events` hands them out: nothing is called back. An
event is told by whoever holds what it is about, so those of links and deliveries are made in
`links.events` and `links.link`, by their session, and are named here with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_shim.amqp_1_0.composites import Error, Open
from broker_shim.protocol_1_0.links.events import (
    DispositionMissed,
    DispositionReceived,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    LinkEvent,
    LinkFailed,
)
from broker_shim.protocol_1_0.links.link import DeliveriesReceived, DeliveryAborted, TransferPiece
from broker_shim.protocol_1_0.session import Session

__all__ = [
    "Authenticated",
    "AuthenticationFailed",
    "ConnectionClosed",
    "ConnectionFailed",
    "ConnectionOpened",
    "DeliveriesReceived",
    "DeliveryAborted",
    "DispositionMissed",
    "DispositionReceived",
    "Event",
    "FlowReceived",
    "LinkAttached",
    "LinkDetached",
    "LinkFailed",
    "Lost",
    "SessionBegun",
    "SessionEnded",
    "SessionFailed",
    "TransferPiece",
]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """SASL succeeded: the peer is `identity`.

    Attributes:
        mechanism: The name of the SASL mechanism that the peer used.
        identity: The peer's identity by that mechanism.
    """

    mechanism: str
    identity: str


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """SASL did not succeed; the peer was told so and the connection is over.

    Attributes:
        mechanism: What the peer asked for; it may be no mechanism at all.
        reason: What went wrong; it is for the audit log and not for the peer.
    """

    mechanism: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """The peer opened: answer with `connection.open` or `connection.close`."""

    open: Open


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """The peer began a session: answer with `session.begin` or `session.end`."""

    session: Session


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The peer ended a session: answer with `session.end`, unless we had ended it (`is_over`).

    Attributes:
        session: Our end of the session.
        error: Why the peer ended it; None if it gave no reason.
    """

    session: Session
    error: Error | None


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The peer broke the protocol on a session; we have ended it and told the peer `error`."""

    session: Session
    error: Error


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The peer closed: answer with `connection.close`, unless we had closed."""

    error: Error | None


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """We ended the connection because of the peer: write what waits, then hang up."""

    error: Error


@dataclass(frozen=True, slots=True)
class Lost:
    """The peer hung up without closing."""


Event = (
    Authenticated
    | AuthenticationFailed
    | ConnectionOpened
    | SessionBegun
    | LinkEvent
    | SessionEnded
    | SessionFailed
    | ConnectionClosed
    | ConnectionFailed
    | Lost
)
