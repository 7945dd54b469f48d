"""A link on which we send: it uses the peer's credit for deliveries, whole or in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_shim.amqp_1_0.composites import Attach, Flow
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.codec.sizes import kept_properties
from broker_shim.protocol_1_0.links.credit import SenderCredit
from broker_shim.protocol_1_0.links.link import Delivery, Link
from broker_shim.protocol_1_0.links.outgoing_delivery import Outgoing
from broker_shim.protocol_1_0.links.port import SessionPort
from broker_shim.protocol_1_0.links.unsettled_maps import MAX_TAG_BYTES
from broker_shim.protocol_1_0.transitions import EndpointStep

MAX_STATE_BYTES = 256
"""Of a state told with a transfer, which has to fit the smallest frame that a peer may ask for."""


_TAGS = "a tag has at most 32 bytes and differs from all unsettled ones"
_NO_CREDIT = "no credit: wait for the peer's flow"


class SenderLink(Link):
    """Our end of a link on which the peer receives.

    What is handed over waits here while the session's window is shut; as only `credit` deliveries
    can be handed over, the caller bounds what waits.

    Attributes:
        flow_properties: Of the peer's flows, the last that mean something; whoever heeds them sets
            them to None.
    """

    is_receiver = False
    port: SessionPort

    def __init__(self, port: SessionPort, remote: Attach) -> None:
        super().__init__(port, remote)
        self.flow_properties: dict[Any, Any] | None = None
        self._credit = SenderCredit()
        self._current: Delivery | None = None
        self._current_is_settled = False

    @property
    def credit(self) -> int:
        """Return how many deliveries may be started; 0 while only resumed ones may go."""
        return 0 if self.is_gone or self.is_incomplete else self._credit.available

    @property
    def resume_credit(self) -> int:
        """Return how many deliveries may be resumed with their payload."""
        return 0 if self.is_gone else self._credit.available

    @property
    def is_draining(self) -> bool:
        """True while the peer waits for the credit to be used or given up: see `drained`."""
        return self._credit.is_draining

    def transfer(
        self,
        tag: bytes,
        pieces: Sequence[bytes | memoryview],
        *,
        settled: bool = False,
        more: bool = False,
        message_format: int = 0,
        state: Any = None,
        waits: bool = False,
    ) -> Delivery:
        """Start a delivery; it is complete unless `more` is to come by `transfer_more`.

        Args:
            tag: At most 32 bytes; none of those unsettled on this link.
            pieces: Payload; not copied, so it must not change until it was written.
            settled: Nothing is to be heard of it again.
            more: True if it goes on.
            message_format: 0 is AMQP's own.
            state: What is known of it, as a transactional state.
            waits: Take it without credit, too: it goes when there is more.

        Raises:
            InvalidCommand: No credit, unless it waits; another delivery is not complete; or one of
                the above.
        """
        self._after(EndpointStep.USED)
        self._check(tag, state)
        self._check_settled(settled=settled)
        if self.is_incomplete or tag in self.earlier:
            raise InvalidCommand("only resumed deliveries may go, or this one is to be resumed")
        self._check_credit(waits=waits)
        delivery = Delivery(self, bytes(tag), message_format, is_settled=settled, state=state)
        self._check_size(delivery, pieces)
        self._credit.waiting += 1
        if not settled:
            self.unsettled[delivery.tag] = delivery
        is_plain = not (more or message_format) and state is None
        if not (is_plain and self.port.send_whole((delivery,), self._credit, (pieces,))):
            self._start(delivery, pieces, more=more)
        return delivery

    def transfer_all(
        self, new: Sequence[tuple[bytes, Sequence[bytes | memoryview]]], *, settled: bool = False
    ) -> list[Delivery]:
        """Start deliveries that are complete, or none of them.

        Args:
            new: Tag and payload of each, as for `transfer`.
            settled: Nothing is to be heard of them again.

        Raises:
            InvalidCommand: Less credit than deliveries; or as `transfer`, of any of them.
        """
        self._after(EndpointStep.USED)
        tags = {tag for tag, _pieces in new}
        if len(tags) < len(new) or not self.unsettled.keys().isdisjoint(tags):
            raise InvalidCommand(_TAGS)
        self._check(max(tags, key=len, default=b""), None)
        self._check_settled(settled=settled)
        if self.is_incomplete or not self.earlier.keys().isdisjoint(tags):
            raise InvalidCommand("only resumed deliveries may go, or one of these is to be resumed")
        if self._credit.available < len(new):
            raise InvalidCommand(_NO_CREDIT)
        deliveries = []
        for tag, pieces in new:
            deliveries.append(delivery := Delivery(self, bytes(tag), 0, is_settled=settled))
            delivery.byte_count = sum(map(len, pieces))
        if self.remote.max_message_size:
            self._check_bytes(max([delivery.byte_count for delivery in deliveries], default=0))
        self._credit.waiting += len(new)
        if not settled:
            self.unsettled.update([(delivery.tag, delivery) for delivery in deliveries])
        payloads = [pieces for _tag, pieces in new]
        sent = self.port.send_whole(deliveries, self._credit, payloads)
        for delivery, pieces in zip(deliveries[sent:], payloads[sent:], strict=True):
            self._start(delivery, pieces, more=False)
        return deliveries

    def resume(
        self,
        tag: bytes,
        pieces: Sequence[bytes | memoryview] = (),
        *,
        settled: bool = False,
        more: bool = False,
        message_format: int = 0,
        state: Any = None,
        waits: bool = False,
    ) -> Delivery:
        """Go on with a delivery of an earlier attachment (2.6.13), else as `transfer`.

        With payload it takes credit, like any. Without, it only tells how the delivery stands
        and takes none: both sides know of the delivery already, and a receiver that gives no
        credit must not be kept from forgetting it.

        Args:
            tag: One of `earlier`.
            pieces: The message from its start, or from where a state `Received` says; none if
                `state` and `settled` are all there is to tell.
            settled: Nothing is to be heard of it again.
            more: True if it goes on.
            message_format: 0 is AMQP's own.
            state: How the delivery stands here.
            waits: Take it without credit, too: it goes when there is more.

        Raises:
            InvalidCommand: It is none of `earlier`, or as `transfer`.
        """
        self._after(EndpointStep.USED)
        self._check(tag, state)
        self._check_earlier(tag)
        is_free = not (more or any(map(len, pieces)))
        self._check_credit(waits=waits or is_free)
        delivery = Delivery(self, bytes(tag), message_format, is_settled=settled, state=state)
        delivery.is_resumed = True
        self._check_size(delivery, pieces)
        if not is_free:
            self._credit.waiting += 1
        if not settled:
            self.unsettled[delivery.tag] = delivery
        self._start(delivery, pieces, more=more, is_free=is_free)
        del self.earlier[delivery.tag]
        return delivery

    def transfer_more(self, pieces: Sequence[bytes | memoryview], *, more: bool = False) -> None:
        """Go on with the delivery that is not complete.

        Raises:
            InvalidCommand: There is none; the peer takes no message so large.
        """
        delivery = self._unfinished()
        self._check_size(delivery, pieces)
        self._send(delivery, pieces, is_first=False, is_last=not more)

    def abort(self) -> None:
        """Give up the delivery that is not complete; it is settled by that.

        Raises:
            InvalidCommand: There is none.
        """
        delivery = self._unfinished()
        self._current = None
        self.port.withdraw(delivery)
        has_begun = delivery.delivery_id is not None
        if not has_begun:
            self._credit.waiting -= 1
        if has_begun or delivery.is_resumed:  # else the peer need not know
            self._send_abort(delivery)
        self.port.forget(delivery)

    def drained(self, *, available: int = 0) -> None:
        """Give up the credit that is left: there is nothing to send; `available` messages wait.

        Raises:
            InvalidCommand: The link is not attached.
        """
        self._after(EndpointStep.USED)
        self._credit.drained()
        self._flow(available, drain=True)

    def received_flow(self, flow: Flow) -> None:
        """Take a flow by which the peer gives credit, and answer it if the peer asks."""
        self.flow_properties = kept_properties(flow.properties) or self.flow_properties
        if flow.link_credit is not None:
            self._credit.grant(flow.delivery_count, flow.link_credit, drain=flow.drain)
        if flow.echo and not self.is_gone and self._is_answered:
            self._flow(0, drain=self._credit.is_draining)

    def _flow(self, available: int, *, drain: bool) -> None:
        self.port.flow(
            handle=self.handle,
            delivery_count=self._credit.delivery_count,
            link_credit=self._credit.available + self._credit.waiting,
            available=available,
            drain=drain,
        )

    def _unfinished(self) -> Delivery:
        self._after(EndpointStep.USED)
        if self._current is None:
            raise InvalidCommand("no delivery of this link is unfinished: start one")
        return self._current

    def _start(
        self,
        delivery: Delivery,
        pieces: Sequence[bytes | memoryview],
        *,
        more: bool,
        is_free: bool = False,
    ) -> None:
        self._current, self._current_is_settled = delivery, delivery.is_settled
        self._send(delivery, pieces, is_first=True, is_last=not more, is_free=is_free)

    def _send(
        self,
        delivery: Delivery,
        pieces: Sequence[bytes | memoryview],
        *,
        is_first: bool,
        is_last: bool,
        is_free: bool = False,
    ) -> None:
        if is_last:
            self._current = None
        outgoing = Outgoing(
            delivery,
            self._credit,
            self.handle,
            is_first=is_first,
            is_settled=self._current_is_settled,
            is_last=is_last,
            is_free=is_free,
            state=delivery.state if is_first else None,
        )
        outgoing.add(pieces)
        self.port.enqueue(outgoing)

    def _send_abort(self, delivery: Delivery) -> None:
        outgoing = Outgoing(
            delivery,
            self._credit,
            self.handle,
            is_first=delivery.delivery_id is None,
            is_settled=True,
            is_last=True,
            is_aborted=True,
            is_free=True,
        )
        self.port.enqueue(outgoing)

    def _check(self, tag: bytes, state: Any) -> None:
        if self._current is not None:
            raise InvalidCommand("another delivery of this link is unfinished: complete it first")
        if len(tag) > MAX_TAG_BYTES or tag in self.unsettled:
            raise InvalidCommand(_TAGS)
        if state is not None and len(write(state)) > MAX_STATE_BYTES:
            message = f"a state of more than {MAX_STATE_BYTES} bytes"
            raise InvalidCommand(message)

    def _check_credit(self, *, waits: bool) -> None:
        if not (self._credit.available or waits):
            raise InvalidCommand(_NO_CREDIT)

    def _check_settled(self, *, settled: bool) -> None:
        mode = self.snd_settle_mode
        if mode is not SenderSettleMode.MIXED and settled != (mode == SenderSettleMode.SETTLED):
            message = f"settled {settled} on a link of snd-settle-mode {mode.name.lower()}"
            raise InvalidCommand(message)

    def _check_earlier(self, tag: bytes) -> None:
        if tag not in self.earlier:
            message = f"{tag!r} is no delivery of an earlier attachment"
            raise InvalidCommand(message)

    def _check_size(self, delivery: Delivery, pieces: Sequence[bytes | memoryview]) -> None:
        delivery.byte_count += sum(map(len, pieces))
        if self.remote.max_message_size:
            self._check_bytes(delivery.byte_count)

    def _check_bytes(self, byte_count: int) -> None:
        most = self.remote.max_message_size
        if most and byte_count > most:
            message = f"a message of {byte_count} bytes: the peer takes {most} at most"
            raise InvalidCommand(message)
