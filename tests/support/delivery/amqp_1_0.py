"""A client of AMQP 1.0, as the rules of delivery need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import proton

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode, SenderSettleMode, StdDistMode
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.encoder import described
from broker_shim.protocol_1_0.codec.values import Described
from tests.support.amqp.link_clients import WINDOW, Client
from tests.support.delivery.driver import Driver, Got
from tests.support.delivery.places import DeliveryPlace

_SELECTOR = "apache.org:selector-filter:string"
_CONSUMER, _COORDINATOR, _FIRST_SENDER = 0, 1, 2
_AT_ONCE, _AT_ONCE_IN_SMALL_FRAMES = 200, 20
"""Messages of one read: a session's window has room for them."""
_SMALL_FRAME = 512


def ranges_of(numbers: list[int]) -> list[tuple[int, int]]:
    """The first and the last of numbers that follow each other, as a client names them."""
    ends = [at for at, number in enumerate(numbers) if numbers[at + 1 : at + 2] != [number + 1]]
    begins = [0, *(at + 1 for at in ends)][: len(ends)]
    return [(numbers[begin], numbers[end]) for begin, end in zip(begins, ends, strict=True)]


class Driver10(Driver):
    """See `Driver`."""

    name = "AMQP 1.0"

    def __init__(self, place: DeliveryPlace, *, has_small_frames: bool = False) -> None:
        super().__init__(place, has_small_frames=has_small_frames)
        self._container = f"client {len(place.drivers)}"
        place.drivers.append(self)
        self._credit = self._tags = 0
        self._kept_source: Source | None = None
        self._connect()

    def _connect(self) -> None:
        fields = {"max_frame_size": _SMALL_FRAME} if self.has_small_frames else {}
        side: Any = self.place.amqp_1_0
        self._client = Client(side, self._container, **fields)
        self._senders: dict[str, int] = {}
        self._got: list[Got] = []
        self._names: dict[int, bytes] = {}
        self._pieces, self._number = b"", -1
        self._txn_id: bytes | None = None
        self._has_coordinator = False
        self._told: dict[int, Any] = {}
        self._ended = False
        self._their_handle = -1

    def send(self, queue: str, *bodies: str, **said: Any) -> list[bool]:
        """See `Driver.send`."""
        handle = self._sender(queue)
        numbers: list[int] = []
        at_once = _AT_ONCE_IN_SMALL_FRAMES if self.has_small_frames else _AT_ONCE
        for begin in range(0, len(bodies), at_once):
            with self._client.together():
                some = bodies[begin : begin + at_once]
                numbers += [self._send(handle, body, said) for body in some]
        outcomes = [self._outcome(number) for number in numbers]
        return [isinstance(each, Accepted) for each in outcomes]

    def _send(self, handle: int, body: str, said: dict[str, Any]) -> int:
        message = proton.Message(body, durable=said.get("durable", True))
        message.priority = said.get("priority", 4)
        message.group_id = said.get("group")
        message.properties = said.get("properties")
        message.annotations = {
            proton.symbol(name): value for name, value in said.get("delivery", {}).items()
        }
        message.id = said.get("message_id")
        if "ttl_ms" in said:
            message.ttl = said["ttl_ms"] / 1000
        state = None if self._txn_id is None else TransactionalState(self._txn_id)
        payload = bytes(message.encode())
        return self._client.deliver_encoded(self._tag(), payload, handle, state=state)

    def declare(self, queue: str, **arguments: Any) -> None:
        """Of AMQP 1.0 no client makes a queue with arguments: an administrator does."""
        self.place.create(queue, **arguments)

    def consume(
        self,
        queue: str,
        credit: int = 100,
        *,
        selector: str | None = None,
        settled: bool = False,
        browse: bool = False,
        kept: bool = False,
    ) -> None:
        """See `Driver.consume`: a link that is kept settles second, so the broker does first."""
        name = Symbol(_SELECTOR)
        source = Source(
            queue,
            expiry_policy="never" if kept else "session-end",
            distribution_mode=StdDistMode.COPY if browse else None,
            filter=None if selector is None else {name: Described(name, selector)},
        )
        mode = SenderSettleMode.SETTLED if settled else SenderSettleMode.MIXED
        self._kept_source, self._credit = source if kept else None, credit
        self._attach(source, snd_settle_mode=mode)

    def _attach(self, source: Source, **fields: Any) -> Any:
        second = ReceiverSettleMode.SECOND if self._kept_source else ReceiverSettleMode.FIRST
        said: dict[str, Any] = {"source": source, "rcv_settle_mode": second, **fields}
        answer = self._client.attach("consumer", _CONSUMER, **said)
        self._their_handle = answer.handle
        self._client.credit(self._credit, _CONSUMER)
        return answer

    @property
    def is_turned_away(self) -> bool:
        """See `Driver.is_turned_away`."""
        return self._ended or bool(self._client.taken(Detach))

    def got(self) -> list[Got]:
        """See `Driver.got`."""
        for told, payload in self._client.taken(TransferFrame):
            self._pieces += payload
            if told.delivery_id is not None:  # the first frame of a delivery says it
                self._number = told.delivery_id
                self._names[told.delivery_id] = told.delivery_tag
            if told.more or (told.resume and told.state is not None):
                continue  # it goes on; or it tells an outcome, and carries no message
            message = proton.Message()
            message.decode(self._pieces)
            self._pieces = b""
            body = message.body
            text = bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)
            self._got.append(Got(text, self._number, message.delivery_count > 0))
        return [*self._got]

    def drain(self) -> None:
        """See `Driver.drain`."""
        self.got()
        self._client.taken(Flow)
        self._client.send(
            Flow(
                next_incoming_id=0,
                incoming_window=WINDOW,
                next_outgoing_id=self._client._frames_out,
                outgoing_window=WINDOW,
                handle=_CONSUMER,
                delivery_count=0,
                link_credit=self._credit,
                drain=True,
            )
        )
        self.place.until(self._is_drained, "the credit is used up")

    def _is_drained(self) -> bool:
        flows = [told for told, _payload in self._client.taken(Flow)]
        self.got()
        return any(told.handle == self._their_handle and told.link_credit == 0 for told in flows)

    def accept(self, *deliveries: Got) -> None:
        """See `Driver.accept`."""
        self._dispose(deliveries, Accepted())

    def release(self, *deliveries: Got, failed: bool = False) -> None:
        """See `Driver.release`."""
        self._dispose(deliveries, Modified(delivery_failed=True) if failed else Released())

    def reject(self, *deliveries: Got) -> None:
        """See `Driver.reject`."""
        self._dispose(deliveries, Rejected())

    def renew(self, *deliveries: Got) -> bool:
        """See `Driver.renew`."""
        for each in deliveries:
            self._client.dispose(each.number, Received(0, 0), settled=False)
        return True

    def _dispose(self, deliveries: Iterable[Got], outcome: Any) -> None:
        if self._txn_id is not None:
            outcome = TransactionalState(self._txn_id, outcome)
        numbers = [delivery.number for delivery in deliveries]
        for first, last in ranges_of(numbers):
            self._client.dispose(first, outcome, last=last, settled=self._kept_source is None)

    def begin(self) -> None:
        """See `Driver.begin`."""
        if not self._has_coordinator:
            self._client.attach(
                "coordinator", _COORDINATOR, is_receiver=False, target=Coordinator()
            )
            self._has_coordinator = True
        declared = self._command(Declare())
        assert isinstance(declared, Declared)
        self._txn_id = bytes(declared.txn_id)

    def commit(self) -> bool:
        """See `Driver.commit`."""
        return self._discharge(fail=False)

    def rollback(self) -> None:
        """See `Driver.rollback`."""
        assert self._discharge(fail=True)

    def _discharge(self, *, fail: bool) -> bool:
        txn_id, self._txn_id = self._txn_id, None
        return isinstance(self._command(Discharge(txn_id, fail)), Accepted)

    def _command(self, command: Declare | Discharge) -> Any:
        payload = described(0x77, encoded_composite(command))
        return self._outcome(self._client.deliver_encoded(self._tag(), payload, _COORDINATOR))

    def cancel(self) -> None:
        """See `Driver.cancel`."""
        self._client.detach(_CONSUMER, closed=True)

    def lose(self) -> None:
        """See `Driver.lose`."""
        self._ended = True
        self._client.vanish()

    def come_back(self, *, undecided: Sequence[Got], accepted: Sequence[Got]) -> None:
        """See `Driver.come_back`: the client's map names what it has, and how that stands."""
        assert self._kept_source is not None
        states: list[tuple[Sequence[Got], Any]] = [(undecided, None), (accepted, Accepted())]
        unsettled = {self._names[it.number]: state for some, state in states for it in some}
        self._client.vanish()
        self._connect()
        answer = self._attach(self._kept_source, unsettled=unsettled)
        assert {*(answer.unsettled or {})} == {*unsettled}

    def _outcome(self, number: int) -> Any:
        self.place.until(lambda: self._is_told(number), f"what became of delivery {number}")
        state = self._told.pop(number)
        return state.outcome if isinstance(state, TransactionalState) else state

    def _is_told(self, number: int) -> bool:
        for told, _payload in self._client.taken(Disposition):
            if told.role:
                for each in range(told.first, (told.last or told.first) + 1):
                    self._told[each] = told.state
        return number in self._told

    def _sender(self, queue: str) -> int:
        if queue not in self._senders:
            self._senders[queue] = handle = _FIRST_SENDER + len(self._senders)
            self._client.attach(f"to {queue}", handle, is_receiver=False, target=Target(queue))
        return self._senders[queue]

    def _tag(self) -> bytes:
        self._tags += 1
        return b"%d" % self._tags
