"""Messages on their way from a queue to one peer: their content comes, and they are sent in order.

`OutgoingMessage` is one of them, held by name; `ContentLine` hands on those whose content is
here; `Wire` sends them: a small one at once, a large one in pieces, one at a time, as much as there
is room for at the peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import filterfalse
from operator import attrgetter

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import CorruptData, StoreError
from broker_shim.listener_1_0.messages.message import framing
from broker_shim.messages.header import FramingHeader
from broker_shim.messages.message import Message, Messages
from broker_shim.messages.reference import Interest
from broker_shim.messages.residency import LoadedMessage
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.store.interface import Entry, MessageHeader

_AROUND_BYTES = 64
"""What framing adds to a message as it came, beside annotations, at most: a header section."""
_PIECE_BYTES = 1 << 18
_is_large, _message_of, _id_of = map(attrgetter, ("is_large", "message", "message_id"))


class OutgoingMessage:
    """A message that a consumer took up: the link's reference, and its interest in the content.

    `load` takes the interest, of many together.

    Attributes:
        message_id: The id of the message.
        message: The one object of it.
        expires_at: On its queue, UTC µs: a queue may limit what the message asks for.
        detail: What its entry there adds to its annotations; None: it was never given back.
        is_large: Its content is not brought into memory whole, but read as it is sent.
        held_bytes: How much of it is in memory on its way.
        interest: In its content, released when the peer has that; None before `load`, and of a
            large one.
    """

    __slots__ = (
        "_reference",
        "detail",
        "expires_at",
        "held_bytes",
        "interest",
        "is_large",
        "message",
        "message_id",
    )

    def __init__(self, message: Message, holder: str, entry: Entry | None, *, whole: bool) -> None:
        """Take it up; `whole`: its content is needed in memory at once, however large."""
        is_large = not whole and entry is not None and entry.message_bytes > STAGED_BYTES
        self.message_id, self.message, self.is_large = message.message_id, message, is_large
        self.expires_at = None if entry is None else entry.expires_at
        self.detail = None if entry is None else entry.detail
        self.held_bytes = 0 if is_large or entry is None else entry.message_bytes
        self._reference = message.reference(holder)
        self.interest: Interest | None = None

    def release(self) -> None:
        """The consumer has it no longer."""
        if self.interest is not None:
            self.interest.release()
        self._reference.release()


def load(messages: Messages, batch: Sequence[OutgoingMessage], holder: str) -> None:
    """Have the content of messages brought into memory, together, but for large ones."""
    small = [*filterfalse(_is_large, batch)]
    interests = messages.interests([*map(_message_of, small)], holder)
    for taken, interest in zip(small, interests, strict=True):
        taken.interest = interest


Arrived = tuple[OutgoingMessage, LoadedMessage]
"""A message, and its content, which is in memory."""
OnArrived = Callable[[Sequence[Arrived]], None]
Then = Callable[[OutgoingMessage, MessageHeader | None, StoreError | None], None]
"""then(taken, header, error): of a large message its header; or why it cannot be read."""


class ContentLine:
    """Hands on messages when their content is here, in the order in which they came.

    Content of several messages is on its way at once, and may come in any order; who is first in
    line holds up the others, as a consumer gets messages in the order of the queue. All that is
    here goes on together.
    """

    def __init__(
        self,
        calls: StoreCalls,
        on_arrived: OnArrived,
        then: Then,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin.

        Args:
            calls: Of the broker: its messages, and the headers of large ones.
            on_arrived: Called with those that follow each other whose content is here; they are
                its from then on, so it raises nothing.
            then: Called for each of the others.
            after: Called when all were handed on that could be.
        """
        self._calls, self._on_arrived, self._then, self._after = calls, on_arrived, then, after
        self._line: deque[OutgoingMessage] = deque()
        self._came: dict[int, LoadedMessage | StoreError] = {}
        self._is_held = False
        self._is_going = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def add(self, batch: Sequence[OutgoingMessage]) -> None:
        """Wait for these, after all that came before."""
        self._line.extend(batch)
        self._ask(batch)
        self._go()

    def again(self, taken: OutgoingMessage) -> None:
        """Ask for the content of the one that came last once more, before all the others."""
        self._line.appendleft(taken)
        self._ask((taken,))
        self._go()

    def hold(self) -> None:
        """Call nothing until `go`: one message is being sent in pieces."""
        self._is_held = True

    def go(self) -> None:
        """Go on."""
        self._is_held = False
        self._go()

    def clear(self) -> list[OutgoingMessage]:
        """Forget and return all that wait."""
        line = list(self._line)
        self._line.clear()
        self._came.clear()
        return line

    def _ask(self, batch: Sequence[OutgoingMessage]) -> None:
        small = [*filterfalse(_is_large, batch)]
        here = self._calls.messages.residency.wanted_here(map(_id_of, small))
        self._came.update(here)
        for taken in small if len(here) < len(small) else ():
            if taken.message_id not in here:
                taken.message.when_here(partial(self._is_here, taken))

    def _is_here(self, taken: OutgoingMessage, result: LoadedMessage | StoreError) -> None:
        if taken in self._line:
            self._came[taken.message_id] = result
            self._go()

    def _go(self) -> None:
        if self._is_going:
            return  # what `then` led to: the loop below goes on
        self._is_going, has_called = True, False
        try:
            while self._line and not self._is_held:
                first = self._line[0]
                if not first.is_large and first.message_id not in self._came:
                    break
                has_called = True
                arrived = self._take_arrived()
                if arrived:
                    self._on_arrived(arrived)
                else:
                    self._call(self._line.popleft())
        finally:
            self._is_going = False
            if has_called:
                self._after()

    def _take_arrived(self) -> list[Arrived]:
        """The first in line, as far as their content is here."""
        line, came, arrived = self._line, self._came, []
        while line and isinstance(content := came.get(line[0].message_id), LoadedMessage):
            taken = line.popleft()
            del came[taken.message_id]
            arrived.append((taken, content))
        return arrived

    def _call(self, taken: OutgoingMessage) -> None:
        header, error = None, self._came.pop(taken.message_id, None)
        assert not isinstance(error, LoadedMessage)
        if taken.is_large:
            try:
                header = self._calls.header(taken.message_id)
            except StoreError as reason:
                error = reason
        self._then(taken, header, error)


class LargeDelivery:
    """A delivery whose content is read from where it is while it is sent.

    Attributes:
        delivery: Of the protocol.
    """

    def __init__(
        self, link: SenderLink, delivery: Delivery, message: Message, framing: FramingHeader
    ) -> None:
        """Go on with a delivery whose lead was sent."""
        self._link, self._message, self._framing = link, message, framing
        self._buffer = memoryview(bytearray(_PIECE_BYTES))
        self._offset = 0
        self.delivery = delivery

    def write(self, room_bytes: int) -> bool:
        """Write about as much as there is room for; True when all of it is written.

        Raises:
            StoreError: Content cannot be read, or ends too early: `abort` it.
        """
        written = 0
        while self._offset < self._framing.body_bytes:
            if written >= room_bytes:
                return False
            count = self._message.read_content(self._offset, self._buffer)
            if count == 0:
                message = f"content of {self._framing.body_bytes} bytes ends at {self._offset}"
                raise CorruptData(message)
            # A copy: the buffer is used again before this is written.
            self._link.transfer_more((bytes(self._buffer[:count]),), more=True)
            self._offset += count
            written += count
        self._link.transfer_more((self._framing.tail,))
        return True

    def abort(self) -> None:
        """Tell the peer that the rest will not come."""
        if not self._link.is_gone:
            self._link.abort()


class Wire:
    """Messages of one link as they go out: nothing else is begun while a large one is sent.

    Attributes:
        large: What is being sent in pieces: nothing else may be begun meanwhile.
    """

    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._delivery: LargeDelivery | None = None
        self.large: OutgoingMessage | None = None

    def takes(self, taken: OutgoingMessage, header: MessageHeader) -> bool:
        """Whether the peer takes a message so large."""
        most = self._link.remote.max_message_size
        if not most:
            return True
        around = _AROUND_BYTES + len((taken.detail or "").encode())
        return header.header_bytes + header.body_bytes + around <= most

    def begin(
        self,
        tag: bytes,
        taken: OutgoingMessage,
        header: MessageHeader,
        *,
        failures: int,
        now_us: int,
        is_first: bool = False,
        waits: bool = False,
        state: TransactionalState | None = None,
    ) -> Delivery:
        """Send a message whose content is here, or begin a large one; `state`: of a new delivery.

        Raises:
            InvalidCommand: The link has ended; or there is no credit, unless it `waits` for more.
        """
        if taken.expires_at != header.expires_at:
            header = header._replace(expires_at=taken.expires_at)
        around = framing(
            header, delivery_count=failures, now_us=now_us, is_first=is_first, detail=taken.detail
        )
        settled = self._link.snd_settle_mode == SenderSettleMode.SETTLED
        if taken.is_large:
            first = self._start(tag, (around.lead,), state, settled=settled, more=True, waits=waits)
            self._delivery = LargeDelivery(self._link, first, taken.message, around)
            self.large = taken
            return first
        content = taken.message.content_now()
        assert content is not None
        pieces = (around.lead, content.body, around.tail)
        delivery = self._start(tag, pieces, state, settled=settled, more=False, waits=waits)
        assert taken.interest is not None
        taken.interest.release()
        return delivery

    def begin_all(
        self, arrived: Sequence[Arrived], failures: Sequence[int], now_us: int
    ) -> list[Delivery]:
        """Send new messages whose content is here, as `begin` each, or none of them.

        Args:
            arrived: The messages, none of which the link brought from before.
            failures: Failed deliveries of each.
            now_us: The time of sending, UTC µs.

        Raises:
            InvalidCommand: As `begin`; or another one is being sent.
            DecodeError: A header is not what a listener makes.
        """
        new = []
        for (taken, content), count in zip(arrived, failures, strict=True):
            header, detail = content.header, taken.detail
            if taken.expires_at != header.expires_at:
                header = header._replace(expires_at=taken.expires_at)
            around = framing(
                header, delivery_count=count, now_us=now_us, is_first=detail is None, detail=detail
            )
            pieces = (around.lead, content.body, around.tail)
            new.append((taken.message_id.to_bytes(8, "big"), pieces))
        settled = self._link.snd_settle_mode == SenderSettleMode.SETTLED
        return self._link.transfer_all(new, settled=settled)

    def _start(
        self,
        tag: bytes,
        pieces: tuple[bytes, ...],
        state: TransactionalState | None,
        *,
        settled: bool,
        more: bool,
        waits: bool,
    ) -> Delivery:
        """A new delivery, or the same one again if the link brought it from before."""
        if tag in self._link.earlier:
            return self._link.resume(tag, pieces, settled=settled, more=more, waits=waits)
        return self._link.transfer(
            tag, pieces, settled=settled, more=more, waits=waits, state=state
        )

    def go_on(self, room_bytes: int) -> bool:
        """Write about so much of the large one; True when all of it is written.

        Raises:
            StoreError: Its content cannot be read: `break_off`.
        """
        assert self._delivery is not None
        if not self._delivery.write(room_bytes):
            return False
        self.large = self._delivery = None
        return True

    def is_sending(self, delivery: Delivery) -> bool:
        """True if this delivery is begun and not written whole."""
        return self._delivery is not None and self._delivery.delivery is delivery

    def break_off(self) -> Delivery:
        """Tell the peer that the rest of the large one will not come; its delivery."""
        assert self._delivery is not None
        broken = self._delivery
        self.large = self._delivery = None
        broken.abort()
        return broken.delivery

    def drop(self) -> None:
        """The link ended: forget what was begun."""
        self.large = self._delivery = None
