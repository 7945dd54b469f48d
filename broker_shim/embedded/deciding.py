"""What a receiver decided about a message: made durable, then confirmed with its own outcome.

After an error nothing is confirmed. What a link of tier 2 has under way here is waited for before
the link is attached again (`Links.tracked`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Accepted, Modified, Rejected, Released
from broker_shim.completion import OnComplete
from broker_shim.embedded.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED, rejection
from broker_shim.errors import StoreError
from broker_shim.protocol_1_0.deliveries import Delivery

if TYPE_CHECKING:
    from broker_shim.embedded.outgoing import OutgoingLink


def accepted(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """It is the receiver's now."""

    def done(error: StoreError | None) -> None:
        owner.broker.metrics.accepted += error is None
        owner.broker.calls.messages.forget(message_id)
        _settle(owner, delivery, ACCEPTED, error)

    _remove(owner, message_id, done)


def rejected(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """Nobody is to have it."""

    def done(error: StoreError | None) -> None:
        owner.broker.metrics.rejected += error is None
        _settle(owner, delivery, REJECTED, error)

    _remove(owner, message_id, done, rejection(delivery.remote_state))


def released(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """It was not looked at."""
    _give_back(owner, delivery, message_id, RELEASED, failed=False)


def modified(owner: OutgoingLink, delivery: Delivery, message_id: int) -> None:
    """Message annotations of the outcome are not kept: stored messages are immutable."""
    remote: Modified = delivery.remote_state
    if remote.undeliverable_here:
        owner.queue.refuse(message_id, owner)
    _give_back(owner, delivery, message_id, MODIFIED, failed=remote.delivery_failed is True)


def broken_off(owner: OutgoingLink, _delivery: Delivery, message_id: int) -> None:
    """It decided before it had all of it: whatever it said, it cannot have used the message."""
    owner.give_back(message_id, failed=True)


def _remove(
    owner: OutgoingLink,
    message_id: int,
    done: OnComplete,
    outcome: dict[str, str] | None = None,
) -> None:
    done = owner.broker.links.tracked(owner.terminus, done)
    owner.broker.settlement.remove(message_id, owner.queue.name, owner.holder, done, outcome)


def _give_back(
    owner: OutgoingLink, delivery: Delivery, message_id: int, state: object, *, failed: bool
) -> None:
    done = owner.broker.links.tracked(owner.terminus, partial(_settle, owner, delivery, state))
    queue, give_back = owner.queue.name, owner.broker.settlement.give_back
    give_back(message_id, queue, owner.holder, failed=failed, on_done=done)


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
