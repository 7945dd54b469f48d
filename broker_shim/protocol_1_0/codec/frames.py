"""The byte stream as protocol headers and frames, and back. Pure.

    protocol header   "AMQP" · protocol id 1 · major 1 · minor 1 · revision 1
    frame             size 4 (all of it) · doff 1 (where the body starts, in 4 bytes) · type 1 ·
                      channel 2 · extended header (skipped) · body: performative, payload

A frame's size is judged at its header: what is too large is refused before a byte of it is kept,
so at most one frame and one read wait here. Fed byte by byte it costs as much as fed whole: bytes
are gathered until a frame is complete, then cut once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from broker_shim.amqp_1_0.composites import Composite, Transfer
from broker_shim.amqp_1_0.definitions import ConnectionError as Condition
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation
from broker_shim.protocol_1_0.codec.transfers import WholeDeliveries, whole_deliveries
from broker_shim.protocol_1_0.serial import WRAP

AMQP_FRAME = 0
SASL_FRAME = 1
HEADER_BYTES = 8

EMPTY_FRAME = bytes((0, 0, 0, 8, 2, AMQP_FRAME, 0, 0))
"""Says only that we are there: a heartbeat."""

_MAGIC = b"AMQP"
_HEADER = struct.Struct(">IBBH")


class ProtocolHeader(NamedTuple):
    """The protocol header that each side sends first, and again after SASL."""

    protocol_id: int
    major: int = 1
    minor: int = 0
    revision: int = 0

    def encoded(self) -> bytes:
        """Return the eight bytes of the header."""
        return _MAGIC + bytes(self)


AMQP_HEADER = ProtocolHeader(0)
SASL_HEADER = ProtocolHeader(3)


class FrameView(NamedTuple):
    """A whole frame in the bytes that came, where it lies.

    Attributes:
        kind: AMQP_FRAME or SASL_FRAME, or a number that nobody knows.
        channel: The channel in the header; nothing in a SASL frame.
        encoded: Bytes that hold the frame.
        start: Where its body starts.
        end: Where it ends; an empty frame has no body.
    """

    kind: int
    channel: int
    encoded: bytes
    start: int
    end: int


class FrameDecoder:
    """Bytes in, protocol headers and frames out; the caller says which it expects.

    Attributes:
        max_frame_bytes: What a larger frame is refused by.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._encoded = b""
        self._at = 0
        self._gathered = bytearray()
        self._needed = 0

    def feed(self, received: bytes) -> None:
        """Take bytes as they came: whole frames, parts, anything."""
        if self._at < len(self._encoded):  # the caller stopped before the last frame
            self._wait_for(0)
        if not self._gathered:
            self._encoded, self._at = bytes(received), 0
            return
        self._gathered += received
        if len(self._gathered) >= self._needed:
            self._encoded, self._at = bytes(self._gathered), 0
            self._gathered.clear()

    def next_header(self) -> ProtocolHeader | None:
        """The protocol header that comes next; None while it is not complete.

        Raises:
            ProtocolViolation: These bytes are no header, seen at the first of them that is not.
        """
        if self._gathered:
            start = bytes(self._gathered[:4])
        else:
            start = self._encoded[self._at : self._at + 4]
        if start != _MAGIC[: len(start)]:
            raise ProtocolViolation(Condition.FRAMING_ERROR, "not AMQP: no protocol header")
        if len(self._encoded) - self._at < HEADER_BYTES:
            self._wait_for(HEADER_BYTES)
            return None
        self._at += HEADER_BYTES
        return ProtocolHeader(*self._encoded[self._at - 4 : self._at])

    def next_frame(self) -> FrameView | None:
        """The next whole frame; None while there is none.

        Raises:
            ProtocolViolation: Its header is impossible, or it is larger than `max_frame_bytes`.
        """
        encoded, at = self._encoded, self._at
        if len(encoded) - at < HEADER_BYTES:
            self._wait_for(HEADER_BYTES)
            return None
        size, doff, kind, channel = _HEADER.unpack_from(encoded, at)
        if size > self.max_frame_bytes:
            message = f"a frame of {size} bytes, where {self.max_frame_bytes} is most"
            raise ProtocolViolation(Condition.FRAMING_ERROR, message)
        if doff < 2 or 4 * doff > size:
            message = f"a frame of {size} bytes whose body starts at {4 * doff}"
            raise ProtocolViolation(Condition.FRAMING_ERROR, message)
        if len(encoded) - at < size:
            self._wait_for(size)
            return None
        self._at = at + size
        return FrameView(kind, channel, encoded, at + 4 * doff, at + size)

    def next_deliveries(self, most: int) -> WholeDeliveries | None:
        """The next frames, if they are of one link and bring a whole delivery each.

        None if the next frame is anything else, or is not whole: see `next_frame`.
        """
        deliveries = whole_deliveries(self._encoded, self._at, self.max_frame_bytes, most)
        if deliveries is not None:
            self._at = deliveries.ends[-1]
        return deliveries

    def _wait_for(self, size: int) -> None:
        """Gather until so many bytes are there."""
        if self._gathered:
            return
        self._gathered += memoryview(self._encoded)[self._at :]
        self._encoded, self._at = b"", 0
        self._needed = size


def encoded_frame(performative: Composite, channel: int = 0, kind: int = AMQP_FRAME) -> bytes:
    """A frame without payload.

    Raises:
        InvalidCommand: A field of the performative does not fit.
    """
    body = encoded_composite(performative)
    return _HEADER.pack(HEADER_BYTES + len(body), 2, kind, channel) + body


def transfer_frame(channel: int, transfer: Transfer, payload_bytes: int) -> bytes:
    """The frame of a transfer up to its payload, which follows.

    Most transfers say their first six fields and no more; those are written in one go, in a
    third of the time of `encoded_composite` and to the same meaning.
    """
    tag, delivery_id = transfer.delivery_tag, transfer.delivery_id
    if tag is None or delivery_id is None or len(tag) > 32 or _says_more(transfer):
        body = encoded_composite(transfer)
        head = _HEADER.pack(HEADER_BYTES + len(body) + payload_bytes, 2, AMQP_FRAME, channel)
        return head + body
    return plain_transfers(
        channel,
        transfer.handle,
        delivery_id,
        [tag],
        [payload_bytes],
        settled=transfer.settled is True,
        more=transfer.more,
        message_format=transfer.message_format or 0,
    )[0]


def plain_transfers(
    channel: int,
    handle: int,
    number: int,
    tags: Sequence[bytes],
    sizes: Iterable[int],
    *,
    settled: bool,
    more: bool = False,
    message_format: int = 0,
) -> list[bytes]:
    """`transfer_frame` of deliveries that say their first six fields; tags have 32 bytes at most.

    The first has the id `number`, modulo 2³², and the others follow: what differs is an id, a tag
    and a size.
    """
    codes = (0x41 if settled else 0x42, 0x41 if more else 0x42)
    end, numbered = _TRANSFER_END.pack(0x70, message_format, *codes), _NUMBERED.pack
    places = zip([at % WRAP for at in range(number, number + len(tags))], sizes, strict=True)
    heads: list[bytes] = []
    for tag_bytes, alike in groupby(tags, len):
        head_bytes = _TRANSFER_BYTES + tag_bytes
        fields = (0, 0x53, Transfer.CODE, 0xC0, head_bytes - 13, 6, 0x70, handle, 0x70)
        before, named = _TRANSFER.pack(2, AMQP_FRAME, channel, *fields), bytes((0xA0, tag_bytes))
        heads += [
            numbered(head_bytes + size, before, delivery_id) + named + tag + end
            for tag, (delivery_id, size) in zip(alike, places)  # noqa: B905  # of one length
        ]
    return heads


def _says_more(transfer: Transfer) -> bool:
    """True if a field after the first six has a value."""
    return (
        transfer.state is not None
        or transfer.rcv_settle_mode is not None
        or transfer.resume
        or transfer.aborted
        or transfer.batchable
    )


_TRANSFER = struct.Struct(">BBH BBBB BB BI B")
_NUMBERED = struct.Struct(f">I {_TRANSFER.size}s I")
_TRANSFER_END = struct.Struct(">BI BB")
_TRANSFER_BYTES = _NUMBERED.size + 2 + _TRANSFER_END.size
