"""A link that is attached again with unsettled deliveries: what becomes of each (AMQP 2.6.13).

The rules are `protocol_1_0.links.resumption`'s. As a sender, we hold without an attachment what the
link acquired of its queue, of which no outcome is known (one that was durable has taken the message
off). As a receiver, we hold what was stored and not settled yet (`received_deliveries`).

Exactly once, as a sender: a message stays acquired by its link until the receiver's outcome is
durable, through lost connections and crashes, so it is offered to nobody else. Where the receiver
names it with an outcome, that outcome is made durable and the delivery is settled, without sending
it again. Where it names it without one, it is sent again as the same delivery, which the receiver
knows by its tag. Where a complete map does not name it, the receiver has no trace of it. So it goes
back to the queue, as a failed delivery, and to the link again as a new one. That happens before the
attach is answered, so that it comes before what waited behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Accepted, Received
from broker_shim.broker.flow.settlement import one_by_one
from broker_shim.completion import OnComplete, after
from broker_shim.links import LinkEndpoint
from broker_shim.links.termini.terminus import DeliveryState, Terminus
from broker_shim.listener_1_0.connections.links import Held, Links
from broker_shim.protocol_1_0.links.link import Link
from broker_shim.protocol_1_0.links.resumption import ResumptionStep, decide, to_tell
from broker_shim.protocol_1_0.links.sender import SenderLink

_PARTIAL = Received(0, 0)
"""Of a delivery whose last frame has not come: what came of it is not kept, so all of it has to."""


class ResumptionPlan(NamedTuple):
    """The comparison of both maps of unsettled deliveries, where we send.

    Attributes:
        unsettled: The map for our attach: tag → state.
        steps: What to do about each tag.
        held: What we hold, by tag.
    """

    unsettled: dict[bytes, Any]
    steps: Mapping[bytes, ResumptionStep]
    held: Mapping[bytes, Held]


def give_back_lost(
    links: Links, terminus: Terminus, link: SenderLink, queue: str | None, on_done: OnComplete
) -> None:
    """Give back what the receiver has no trace of, and what is not of its queue any more."""
    key, held = terminus.key, links.held.get(terminus.key, {})
    steps = _decided(link, dict.fromkeys(held))
    lost = [
        tag
        for tag, delivery in held.items()
        if steps[tag] is ResumptionStep.SEND_AGAIN or delivery.queue != queue
    ]
    done = after(len(lost) + 1, on_done)
    links.give_back(key, [held.pop(tag) for tag in lost], one_by_one(done))
    if not held:
        links.held.pop(key, None)
    done(None)


def resumed_sender(link: SenderLink, held: Mapping[bytes, Held]) -> ResumptionPlan:
    """Compare what a link holds with what the receiver says of it."""
    ours = dict.fromkeys(held)
    steps = _decided(link, ours)
    return ResumptionPlan(to_tell(steps, ours), steps, held)


def told_by_receiver(
    link: Link, unsettled: Mapping[bytes, DeliveryState | None]
) -> dict[bytes, Any]:
    """Where we receive: the map for our attach, after `forget_settled`."""
    ours = {tag: _PARTIAL if state is None else Accepted() for tag, state in unsettled.items()}
    return to_tell(_decided(link, ours), ours)


def forget_settled(links: Links, endpoint: LinkEndpoint, link: Link, on_done: OnComplete) -> None:
    """Have what the sender has settled forgotten, where we receive, before the attach is answered.

    From the answer on it may use those tags again. Were one still noted after a crash, the sender
    would be told that the new delivery was accepted, which may never have come.
    """
    steps = _decided(link, endpoint.terminus.unsettled)
    settled = [tag for tag, step in steps.items() if step is ResumptionStep.FORGET]
    links.settle(endpoint, settled, on_done)


def _decided(link: Link, ours: Mapping[bytes, Any]) -> dict[bytes, ResumptionStep]:
    return decide(
        is_receiver=link.is_receiver,
        ours=ours,
        theirs=link.remote.unsettled or {},
        is_complete=not link.remote.incomplete_unsettled,
    )


def tag_of(message_id: int) -> bytes:
    """The delivery tag of a message on any link of ours."""
    return message_id.to_bytes(8, "big")
