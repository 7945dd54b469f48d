"""The deliveries that a link held from an earlier attachment, sent again or settled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.broker.delivery.consumer_delivery import ConsumerDelivery
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import Held
from broker_shim.listener_1_0.connections.resumption import ResumptionPlan, tag_of
from broker_shim.listener_1_0.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED
from broker_shim.protocol_1_0.links.resumption import ResumptionStep
from broker_shim.protocol_1_0.links.sender import SenderLink

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink

_PLAIN: Mapping[type, Any] = {type(kind): kind for kind in (ACCEPTED, REJECTED, RELEASED, MODIFIED)}
"""Outcomes without what their receiver said of them."""


class Resumption:
    """Carries out what was decided when one link was attached again (`connections.resumption`).

    Attributes:
        to_send: Messages to send again as the same deliveries, when there is credit.
        kept: What no map said anything of: for the next attach.
    """

    def __init__(
        self,
        owner: OutgoingLink,
        connection: Connection,
        link: SenderLink,
        plan: ResumptionPlan,
    ) -> None:
        """Begin before the first delivery is sent again.

        Args:
            owner: The link's endpoint.
            connection: The connection that the link is on.
            link: Of the protocol.
            plan: What was decided.
        """
        self._owner, self._connection, self._link = owner, connection, link
        self._links, self._terminus, self._plan = connection.links, owner.terminus, plan
        self.to_send: dict[bytes, Held] = {}
        self.kept: dict[bytes, Held] = {}

    def start(self) -> None:
        """Begin to carry the plan out, as the link is attached on both sides.

        What the receiver has an outcome of is told by a transfer without payload, unsettled: the
        receiver forgets it when we settle, which is when its outcome is durable here. Which outcome
        it is goes with it, not what else the receiver said, which need not fit a frame.

        From here on this endpoint has what the link held; an attach that failed leaves it there.
        """
        self._links.held.pop(self._terminus.key, None)
        for tag, held in self._plan.held.items():
            step = self._plan.steps[tag]
            if step is ResumptionStep.SETTLE:
                outcome = (self._link.remote.unsettled or {})[tag]
                delivery = self._link.resume(tag, state=_PLAIN[type(outcome)])
                delivery.remote_state = outcome
                self._owner.decided(delivery, held.message_id)
            elif step is ResumptionStep.RESUME:
                self.to_send[tag] = held
            else:
                self.kept[tag] = held
        self.end_if_worked_off()

    def go_on(self, delivery: ConsumerDelivery, most: int) -> None:
        """Send again what there is credit for; `most` messages may be under way."""
        room = min(self._link.resume_credit, most) - delivery.count
        for tag in list(self.to_send)[: max(0, room)]:
            delivery.take_again(self.to_send.pop(tag).message_id)

    def send_later(self, held: Held, delay_s: float) -> None:
        """Send a message that could not be sent now when there is credit, or after a delay."""
        if delay_s:
            self._connection.broker.later(delay_s, partial(self._send_after_all, held))
        else:
            self.to_send[tag_of(held.message_id)] = held

    def _send_after_all(self, held: Held) -> None:
        self.send_later(held, 0.0)
        if self._owner.has_ended:
            self._links.end_holding(self._terminus, self.left())
        self._owner.on_flow()

    def end_if_worked_off(self) -> None:
        """After incomplete maps, detach when all that they named is settled.

        The peer attaches again, with what its map had no room for (AMQP 2.7.3).
        """
        link = self._link
        if link.is_incomplete and not (link.is_gone or link.unsettled or self.to_send):
            self._connection.leave(link)

    def left(self) -> dict[bytes, Held]:
        """Take what is still held, and was not sent again; the next call gets nothing."""
        left = {**self.to_send, **self.kept}
        self.to_send, self.kept = {}, {}
        return left
