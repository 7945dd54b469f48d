"""One message that a client is sending: kept whole while it is small, then on its way to the store.

A message whose content is large, durable and bound for queues that keep messages is not put
together here. Its content goes to the store as it comes (`NewMessage`), and what is around it is
kept. It is enqueued when all of it came and is durable, so half a message is never on a queue. If a
message is broken off, the store forgets what came of it.
"""

from __future__ import annotations

from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterable
from typing import Protocol

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.store_puts import STAGED_BYTES, Staged
from broker_shim.broker.wiring.address import Node
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.messages.limits import check_begun
from broker_shim.listener_1_0.messages.long_content import LongContent, long_content
from broker_shim.listener_1_0.messages.message import parse, parse_around
from broker_shim.messages.new_message import NewMessage
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.store.interface import MessageHeader

MOST_TAIL_BYTES = 1 << 20
"""After large content: the footer, or more sections of data."""
_LEAD_BYTES = 64
"""Of a body, as much as tells that it begins."""


class Publish(Protocol):
    """A call that puts a message on queues: `Broker.publish`, or that of a transaction."""

    def __call__(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        queues: Iterable[str],
        on_done: OnComplete,
    ) -> None:
        """Put a message on queues, all or none."""


class IncomingMessage:
    """Collects one message from its first frame to its last. On the loop's thread only.

    Attributes:
        byte_count: Of the encoded message so far.
    """

    def __init__(
        self,
        broker: ServedQueues,
        node: Node,
        now_us: Callable[[], int],
        may_send: Callable[[MessageHeader], bool] = lambda _header: True,
    ) -> None:
        """Begin before the first bytes of the message.

        Args:
            broker: The virtual host that the message goes to.
            node: What the link is to.
            now_us: Tells the time, UTC µs.
            may_send: Whether the client may send a message with this header. One that it may not
                is refused when all of it came, and until then is written nowhere.
        """
        self._broker, self._node, self._now_us = broker, node, now_us
        self._may_send = may_send
        self._most_header_bytes = broker.settings.max_header_bytes
        self._came: bytes | bytearray = b""
        self._has_begun = False  # its body, within the bytes that a header may have
        self._large: LargeContent | None = None
        self._is_whole = False  # decided: it will not be staged
        self.byte_count = 0

    def add(self, piece: bytes, on_room: Callable[[], None]) -> None:
        """Add the next bytes of the message.

        Raises:
            DecodeError: They are not AMQP 1.0; too much comes before the body, or after large
                content.
            StoreError: The store takes no content now.
        """
        self.byte_count += len(piece)
        if self._large is not None:
            self._large.add(piece)
            return
        if not self._came:
            self._came = piece
        elif piece:  # put together at once: a list of little pieces is twenty times as large
            if isinstance(self._came, bytes):
                self._came = bytearray(self._came)
            self._came += piece
        if self.byte_count > self._most_header_bytes and not self._has_begun:
            check_begun(bytes(self._came[: self._most_header_bytes + _LEAD_BYTES]))
            self._has_begun = True
        if self.byte_count > STAGED_BYTES and not self._is_whole:
            self._stage_if_large(on_room)

    @property
    def is_full(self) -> bool:
        """True while no more of it should be read: the store has to catch up."""
        return self._large is not None and self._large.content.is_full

    @property
    def held_bytes(self) -> int:
        """The bytes of it in memory: all of it, or none if it goes to the store as it comes."""
        return 0 if self._large is not None else self.byte_count

    def finish(self) -> tuple[MessageHeader, bytes | LargeContent]:
        """Finish a message that came whole: its header, and its content.

        Raises:
            DecodeError: It is not an AMQP 1.0 message.
        """
        if self._large is not None:
            return self._large.finished(self._now_us()), self._large
        encoded, self._came = bytes(self._came), b""
        most = self._most_header_bytes
        return parse(encoded, now_us=self._now_us(), most_header_bytes=most)

    def _stage_if_large(self, on_room: Callable[[], None]) -> None:
        """Decide, once, by what came first, whether the content is staged."""
        self._is_whole = True
        prefix = bytes(self._came)
        content = long_content(prefix)
        if content is None or content.length <= STAGED_BYTES:
            return
        header = parse_around(
            prefix[: content.start],
            content,
            now_us=self._now_us(),
            most_header_bytes=self._most_header_bytes,
        )
        queues = self._broker.queues_for(self._node, header)
        if not queues or not header.durable or not self._broker.all_keep(queues):
            return
        if not self._may_send(header):
            return
        staged = self._broker.calls.puts.stage(header)
        self._large = LargeContent(self._broker, staged, content, prefix[: content.start], on_room)
        self._came = b""
        self._large.add(prefix[content.start :])


class LargeContent:
    """The content of one message that goes to the store as it comes."""

    def __init__(
        self,
        broker: ServedQueues,
        staged: Staged,
        shape: LongContent,
        lead: bytes,
        on_room: Callable[[], None],
    ) -> None:
        self._broker, self._staged, self._shape, self._lead = broker, staged, shape, lead
        self.content = NewMessage(staged.add, broker.calls.flush, on_room)
        self._tail = b""
        self._most_header_bytes = broker.settings.max_header_bytes
        self._header: MessageHeader | None = None
        self._text: IncrementalDecoder | None = None
        if shape.message_type == "text":
            self._text = getincrementaldecoder("utf-8")()

    def add(self, piece: bytes) -> None:
        """The next bytes after the lead."""
        missing = self._shape.length - self.content.byte_count
        content, tail = piece[:missing], piece[missing:]
        if content:
            self._check_text(content)
            self.content.add_content(content)
        self._tail += tail
        if len(self._tail) > MOST_TAIL_BYTES:
            message = f"more than {MOST_TAIL_BYTES} bytes after content of {self._shape.length}"
            raise DecodeError(message)

    def finished(self, now_us: int) -> MessageHeader:
        """Finish content that came whole, and get the header of its message.

        Raises:
            DecodeError: It is not an AMQP 1.0 message.
        """
        if self.content.byte_count < self._shape.length:
            message = f"content of {self._shape.length} bytes ends at {self.content.byte_count}"
            raise DecodeError(message)
        self._check_text(b"", final=True)
        self._header = parse_around(
            self._lead + self._tail,
            self._shape,
            now_us=now_us,
            most_header_bytes=self._most_header_bytes,
        )
        return self._header

    def enqueue(self, queues: set[str], on_done: OnComplete, publish: Publish) -> None:
        """Have the content's message put on queues, all or none, when all of it is durable."""
        header = self._header
        assert header is not None

        def durable(error: StoreError | None) -> None:
            if error is None:
                publish(header, self._staged, queues, on_done)
            else:
                on_done(error)

        self.content.content_complete().add_callback(durable)

    def _check_text(self, piece: bytes, *, final: bool = False) -> None:
        if self._text is None:
            return
        try:
            self._text.decode(piece, final=final)
        except UnicodeDecodeError as reason:
            message = f"text that is not UTF-8: {reason.reason}"
            raise DecodeError(message) from reason
