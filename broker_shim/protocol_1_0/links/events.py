"""Define a session's events about links and their deliveries, part of `protocol_1_0.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker_shim.amqp_1_0.composites import Error, TransactionalState
from broker_shim.protocol_1_0.links.link import (
    DeliveriesReceived,
    DeliveryAborted,
    TransferPiece,
)
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.sender import SenderLink


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attached a link: answer with `link.attach` or `link.refuse`."""

    link: ReceiverLink | SenderLink


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """The peer told how a link stands: read its `credit`."""

    link: ReceiverLink | SenderLink


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The peer detached: answer with `link.detach`, unless we had detached (`link.is_over`).

    Attributes:
        link: Our end of the link.
        is_closed: True if the peer is done with the link for good.
        error: Why the peer detached; None if it gave no reason.
    """

    link: ReceiverLink | SenderLink
    is_closed: bool
    error: Error | None


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """The peer broke the protocol on a link; we have detached it and told the peer `error`."""

    link: ReceiverLink | SenderLink
    error: Error


@dataclass(frozen=True, slots=True)
class DispositionReceived:
    """The peer told a state of deliveries, or settled them.

    Attributes:
        deliveries: Those of the disposition's range that were not settled yet, as runs.
        state: What the peer says of all of them; None if it says nothing.
        is_settled: True if the peer has forgotten them; then they are settled here, too.
        lengths: How long each run was when this came.
    """

    deliveries: tuple[Run, ...]
    state: Any
    is_settled: bool
    lengths: tuple[int, ...]

    @property
    def parts(self) -> list[Run]:
        """List the deliveries: as runs that may have been cut since, by what was read ahead."""
        pairs = zip(self.deliveries, self.lengths, strict=True)
        return [part for run, count in pairs for part in run.parts(count)]


@dataclass(frozen=True, slots=True)
class DispositionMissed:
    """The peer told a transactional state of deliveries some of which went with their link."""

    state: TransactionalState


LinkEvent = (
    LinkAttached
    | FlowReceived
    | LinkDetached
    | LinkFailed
    | TransferPiece
    | DeliveriesReceived
    | DeliveryAborted
    | DispositionReceived
    | DispositionMissed
)
