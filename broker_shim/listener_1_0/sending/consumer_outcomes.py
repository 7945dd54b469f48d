"""What a receiver decided about a message: made durable, then confirmed with its own outcome.

After an error nothing is confirmed. What a link of tier 2 has under way here is waited for before
the link is attached again (`Links.tracked`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Accepted, Modified, Rejected, Released
from broker_shim.broker.dead_letters import Rejection
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.outcomes import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    kept_of,
    rejection,
)
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.store.interface import Annotations

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


def accepted(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """It is the receiver's now."""

    def done(error: StoreError | None) -> None:
        owner.broker.metrics.accepted += error is None
        owner.broker.calls.messages.forget(message_id)
        _settle(owner, delivery, ACCEPTED, error)

    tracked, remove = owner.links.tracked, owner.broker.settlement.remove
    remove(message_id, owner.queue.name, owner.holder, tracked(owner.terminus, done))


def rejected(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """Nobody is to have it of this queue: it goes to the dead letters, or leaves the store."""

    def done(error: StoreError | None) -> None:
        owner.broker.metrics.rejected += error is None
        _settle(owner, delivery, REJECTED, error)

    told = rejection(delivery.remote_state)
    it = Rejection(owner.broker, owner.queue, message_id, owner.holder, told)
    it.run(owner, owner.links.tracked(owner.terminus, done))


def released(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """It was not looked at."""
    _give_back(owner, delivery, message_id, RELEASED, failed=False)


def modified(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """Its message annotations are kept by the entry: stored messages are immutable."""
    remote: Modified = delivery.remote_state
    if remote.undeliverable_here:
        owner.queue.refuse(message_id, owner)
    failed = remote.delivery_failed is True
    kept = kept_of(owner.broker, owner.queue.name, message_id, remote)
    _give_back(owner, delivery, message_id, MODIFIED, failed=failed, annotations=kept)


def broken_off(owner: OutgoingLink, _delivery: Delivery, message_id: int) -> None:
    """It decided before it had all of it: whatever it said, it cannot have used the message."""
    owner.give_back(message_id, failed=True)


def _give_back(
    owner: OutgoingLink,
    delivery: Delivery,
    message_id: int,
    state: object,
    *,
    failed: bool,
    annotations: Annotations | None = None,
) -> None:
    done = owner.links.tracked(owner.terminus, partial(_settle, owner, delivery, state))
    queue, give_back = owner.queue.name, owner.broker.settlement.give_back
    give_back(message_id, queue, owner.holder, failed=failed, on_done=done, annotations=annotations)


def _settle(
    owner: OutgoingLink, delivery: Delivery, state: object, error: StoreError | None
) -> None:
    if error is None:
        owner.confirm(delivery, state)


DECISIONS: Mapping[type, Callable[[OutgoingLink, Delivery, int], None]] = {
    Accepted: accepted,
    Rejected: rejected,
    Released: released,
    Modified: modified,
}
