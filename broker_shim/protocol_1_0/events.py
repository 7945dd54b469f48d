"""What a connection tells its caller, in the order it happened.

What the peer began or ended has to be answered, where it says so. Of what *we* ended because the
peer broke the protocol (`…Failed`) the peer was told already. When a session or the connection
ends, its links and sessions are gone with it, without an event each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Error, Open, TransactionalState

if TYPE_CHECKING:
    from broker_shim.protocol_1_0.links.deliveries import Delivery
    from broker_shim.protocol_1_0.links.receiver import ReceiverLink
    from broker_shim.protocol_1_0.links.sender import SenderLink
    from broker_shim.protocol_1_0.session import Session


@dataclass(frozen=True, slots=True)
class Authenticated:
    """SASL succeeded: the peer is `identity`."""

    mechanism: str
    identity: str


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """SASL did not succeed; the peer was told so and the connection is over.

    Attributes:
        mechanism: What the peer asked for; it may be no mechanism at all.
        reason: For the audit log, not for the peer.
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
class LinkAttached:
    """The peer attached a link: answer with `link.attach` or `link.refuse`."""

    link: ReceiverLink | SenderLink


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """The peer told how a link stands: read its `credit`."""

    link: ReceiverLink | SenderLink


@dataclass(slots=True)  # not frozen: one for every message, and that costs 1 µs
class TransferPiece:
    """Bytes of a delivery that we receive.

    Attributes:
        delivery: Whose; it is new with its first piece.
        payload: A copy of our own; may be empty.
        is_last: True if the delivery is complete with it.
    """

    delivery: Delivery
    payload: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """The peer gave a delivery up: forget its pieces."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class DispositionReceived:
    """The peer told a state, or settled.

    Attributes:
        deliveries: Those of the range that were not settled yet.
        state: What it says of all of them; None if nothing.
        is_settled: True if the peer has forgotten them; then they are settled here, too.
    """

    deliveries: tuple[Delivery, ...]
    state: Any
    is_settled: bool


@dataclass(frozen=True, slots=True)
class DispositionMissed:
    """The peer told a transactional state of deliveries some of which went with their link."""

    state: TransactionalState


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The peer detached: answer with `link.detach`, unless we had detached (`link.is_over`)."""

    link: ReceiverLink | SenderLink
    is_closed: bool
    error: Error | None


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """We ended a link because of the peer."""

    link: ReceiverLink | SenderLink
    error: Error


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The peer ended: answer with `session.end`, unless we had ended (`session.is_over`)."""

    session: Session
    error: Error | None


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """We ended a session because of the peer."""

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
    | LinkAttached
    | FlowReceived
    | TransferPiece
    | DeliveryAborted
    | DispositionReceived
    | DispositionMissed
    | LinkDetached
    | LinkFailed
    | SessionEnded
    | SessionFailed
    | ConnectionClosed
    | ConnectionFailed
    | Lost
)
