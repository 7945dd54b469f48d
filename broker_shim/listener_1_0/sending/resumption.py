"""A link that is attached again with unsettled deliveries: what becomes of each (AMQP 2.6.13).

The rules are `protocol_1_0.resumption`'s. What we hold without an attachment is, as a sender, what
the link acquired of its queue, of which no outcome is known (one that was durable has taken the
message off); as a receiver, what was stored and not settled yet (`received_deliveries`).

Exactly once, as a sender: a message stays acquired by its link until the receiver's outcome is
durable, through lost connections and crashes, so it is offered to nobody else. Where the receiver
names it with an outcome, that outcome is made durable and the delivery is settled, without sending
it again. Where it names it without one, it is sent again as the same delivery, which the receiver
knows by its tag. Where a complete map does not name it, the receiver has no trace of it, so it goes
back to the queue, as a failed delivery, and to the link again as a new one: before the attach is
answered, so that it comes before what waited behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_shim.amqp_1_0.composites import Accepted, Received
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.links import LinkEndpoint
from broker_shim.links.terminus import DeliveryState, Terminus
from broker_shim.listener_1_0.links import Held, Links
from broker_shim.listener_1_0.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED
from broker_shim.listener_1_0.sending.consumer_outcomes import DECISIONS
from broker_shim.protocol_1_0.links.link import Link
from broker_shim.protocol_1_0.links.resumption import ResumptionStep, decide, to_tell
from broker_shim.protocol_1_0.links.sender import SenderLink

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.dispatch import Delivering
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


_PLAIN: Mapping[type, Any] = {type(each): each for each in (ACCEPTED, REJECTED, RELEASED, MODIFIED)}
"""Outcomes without what their receiver said of them."""


_PARTIAL = Received(0, 0)
"""Of a delivery whose last frame has not come: what came of it is not kept, so all of it has to."""


class Resumed(NamedTuple):
    """What the two maps come to, where we send.

    Attributes:
        told: For our attach: tag → state.
        steps: What to do about each tag.
        held: What we hold, by tag.
    """

    told: dict[bytes, Any]
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
        for tag, each in held.items()
        if steps[tag] is ResumptionStep.SEND_AGAIN or each.queue != queue
    ]
    left = len(lost)

    def done(_error: StoreError | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            on_done(None)

    for tag in lost:
        links.give_back(key, held.pop(tag), done)
    if not held:
        links.held.pop(key, None)
    if not lost:
        on_done(None)


def resumed_sender(link: SenderLink, held: Mapping[bytes, Held]) -> Resumed:
    """Compare what a link holds with what the receiver says of it."""
    ours = dict.fromkeys(held)
    steps = _decided(link, ours)
    return Resumed(to_tell(steps, ours), steps, held)


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


@dataclass(eq=False)
class Resuming:
    """Carries out what was decided, for one link.

    Attributes:
        owner: The link's endpoint.
        resumed: What was decided.
        to_send: Messages to send again as the same deliveries, when there is credit.
        kept: What no map said anything of: for the next attach.
    """

    owner: OutgoingLink
    resumed: Resumed
    to_send: dict[bytes, Held] = field(default_factory=dict)
    kept: dict[bytes, Held] = field(default_factory=dict)

    def start(self) -> None:
        """The link is attached on both sides.

        What the receiver has an outcome of is told by a transfer without payload, unsettled: the
        receiver forgets it when we settle, which is when its outcome is durable here. Which outcome
        it is goes with it, not what else the receiver said, which need not fit a frame.

        From here on this endpoint has what the link held; an attach that failed leaves it there.
        """
        self.owner.links.held.pop(self.owner.terminus.key, None)
        for tag, held in self.resumed.held.items():
            step = self.resumed.steps[tag]
            if step is ResumptionStep.SETTLE:
                link = self.owner.link
                outcome = (link.remote.unsettled or {})[tag]
                delivery = link.resume(tag, state=_PLAIN[type(outcome)])
                delivery.remote_state = outcome
                DECISIONS[type(outcome)](self.owner, delivery, held.message_id)
            elif step is ResumptionStep.RESUME:
                self.to_send[tag] = held
            else:
                self.kept[tag] = held
        self.end_if_worked_off()

    def go_on(self, delivering: Delivering, most: int) -> None:
        """Send again what there is credit for; `most` messages may be under way."""
        room = min(self.owner.link.resume_credit, most) - delivering.count
        for tag in list(self.to_send)[: max(0, room)]:
            delivering.resume(self.to_send.pop(tag).message_id)

    def send_later(self, message_id: int, delay_s: float) -> None:
        """One that was taken could not be sent: when there is credit, or after a delay."""
        if delay_s:
            self.owner.broker.later(delay_s, partial(self._send_after_all, message_id))
        else:
            self.to_send[tag_of(message_id)] = Held(message_id, self.owner.queue.name)

    def _send_after_all(self, message_id: int) -> None:
        self.send_later(message_id, 0.0)
        if self.owner.has_ended:
            self.owner.links.end_holding(self.owner.terminus, self.left())
        self.owner.on_flow()

    def end_if_worked_off(self) -> None:
        """After incomplete maps, detach when all that they named is settled.

        The peer attaches again, with what its map had no room for (AMQP 2.7.3).
        """
        link = self.owner.link
        if link.is_incomplete and not (link.is_gone or link.unsettled or self.to_send):
            self.owner.leave()

    def left(self) -> dict[bytes, Held]:
        """What is held still, and was not sent again; told once."""
        left = {**self.to_send, **self.kept}
        self.to_send, self.kept = {}, {}
        return left


def tag_of(message_id: int) -> bytes:
    """The delivery tag of a message on any link of ours."""
    return message_id.to_bytes(8, "big")
