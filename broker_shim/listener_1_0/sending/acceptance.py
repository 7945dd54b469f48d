"""The removal of what a consumer accepted; and whether a delivery without outcome failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Modified
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connection import Connection
from broker_shim.listener_1_0.links import Links
from broker_shim.listener_1_0.outcomes import ACCEPTED
from broker_shim.listener_1_0.termini import default_outcome
from broker_shim.protocol_1_0.links.link import Delivery

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


def accept(
    link: OutgoingLink,
    links: Links,
    deliveries: Sequence[Delivery],
    message_ids: Sequence[int],
) -> None:
    """Take accepted messages off their queue, and tell their receiver.

    The next attach waits for that.
    """
    left, all_told = len(deliveries), links.tracked(link.terminus, _nothing)
    of_message = dict(zip(message_ids, deliveries, strict=True))

    def done(ended: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
        nonlocal left
        left -= len(ended)
        try:
            durable = [
                of_message[message_id]
                for message_id, error in zip(ended, outcomes, strict=True)
                if error is None
            ]
            link.confirm(durable, ACCEPTED)
        finally:
            if not left:
                all_told(None)

    link.holdings.accept(message_ids, done)


def has_failed(connection: Connection, delivery: Delivery) -> bool:
    """Whether a delivery without an outcome, whose link is gone, was a failed one.

    Decision (3.2.1, delivery-count: "unsuccessful previous attempts"; 3.5.3, default-outcome):
    where the connection was lost, a delivery that was written to it whole has failed. Its consumer
    may have failed over any of those, and cannot say. Where the peer left in good order, or we do,
    the link's default outcome holds, which is `released` unless its source said `modified` with
    `delivery-failed`. What was not written whole nobody can have used.
    """
    if not connection.has_left(delivery):
        return False
    if not (connection.peer_parts or connection.broker.is_stopping):
        return True
    return isinstance(default_outcome(delivery.link.remote.source), Modified)


def _nothing(_error: StoreError | None) -> None:
    """Ignore the outcome: no other caller waits for it."""
