"""The unit of the wire. Pure.

     0        flags    00 (format), 00, first segment 8, last segment 4, first frame 2, last frame 1
     1        type     of the segment: control 0, command 1, header 2, body 3
     2..3     size     of the frame with this header, at least 12
     4        0
     5        track    0000, then 0 for controls, 1 for what commands are made of
     6..7     channel
     8..11    0
    12..      payload

All numbers are unsigned, most significant byte first. Before the first frame each side sends the
protocol header: "AMQP", then 1, 1, 0, 10.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_shim.amqp_0_10.definitions import MIN_MAX_FRAME_SIZE, SegmentType
from broker_shim.framing.errors import LocalFramingError, RemoteFramingError

PROTOCOL_HEADER = b"AMQP\x01\x01\x00\x0a"
HEADER_BYTES = 12
MOST_FRAME_BYTES = 65_535
FIRST_SEGMENT, LAST_SEGMENT, FIRST_FRAME, LAST_FRAME = 8, 4, 2, 1
ALONE = FIRST_SEGMENT | LAST_SEGMENT | FIRST_FRAME | LAST_FRAME
"""Flags of a frame that is a whole assembly."""

_HEADER = struct.Struct(">BBHBBHI")
_CONTROL = int(SegmentType.CONTROL)
_MOST_TYPE = int(SegmentType.BODY)


class Frame(NamedTuple):
    """A frame as it came or goes; nothing of it is decoded.

    Attributes:
        type: What segment it belongs to (`SegmentType`).
        flags: Where it stands in its segment, and that in its assembly.
        channel: The channel of the session; controls of the connection are on channel 0.
        payload: The bytes after the header.
    """

    type: int
    flags: int
    channel: int
    payload: bytes

    @property
    def is_last_of_segment(self) -> bool:
        """True if the frame is the last of its segment."""
        return self.flags & LAST_FRAME != 0

    @property
    def is_last_of_assembly(self) -> bool:
        """True if nothing of its assembly comes after it."""
        return self.flags & (LAST_SEGMENT | LAST_FRAME) == LAST_SEGMENT | LAST_FRAME

    @property
    def encoded(self) -> bytes:
        """Return the encoded frame.

        Raises:
            LocalFramingError: It is too large, or a value does not fit.
        """
        kind, flags, channel, payload = self
        try:
            size = HEADER_BYTES + len(payload)
            if size > MOST_FRAME_BYTES or flags > ALONE or kind > _MOST_TYPE:
                message = f"a frame of type {kind}, {size} bytes and flags {flags:#x}"
                raise LocalFramingError(f"{message}: split it by `frames_of`")
            return frame_header(kind, flags, channel, len(payload)) + payload
        except (struct.error, TypeError) as reason:
            message = f"channel {channel} or type {kind} does not fit a frame: {reason}"
            raise LocalFramingError(message) from reason


def frame_header(kind: int, flags: int, channel: int, payload_bytes: int) -> bytes:
    """Encode what stands before the payload of a frame; raises struct.error if it does not fit."""
    size = HEADER_BYTES + payload_bytes
    return _HEADER.pack(flags, kind, size, 0, kind != _CONTROL, channel, 0)


class FrameReader:
    """Finds the frames in bytes that come in any pieces.

    Attributes:
        max_frame_bytes: Most bytes of a frame with its header; its first bytes tell the size.
    """

    def __init__(self, max_frame_bytes: int = MOST_FRAME_BYTES) -> None:
        if not MIN_MAX_FRAME_SIZE <= max_frame_bytes <= MOST_FRAME_BYTES:
            message = f"max_frame_bytes is {MIN_MAX_FRAME_SIZE} to {MOST_FRAME_BYTES}"
            raise LocalFramingError(message)
        self.max_frame_bytes = max_frame_bytes
        self._came = bytearray()
        self._needed_bytes = HEADER_BYTES

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that has not come whole."""
        return len(self._came)

    @property
    def is_broken(self) -> bool:
        """True once something that is no frame has come: `feed` raises, whatever comes."""
        return not self._needed_bytes

    def feed(self, received: bytes) -> list[Frame]:
        """Add bytes, and return the frames that are whole now.

        Raises:
            RemoteFramingError: There is something that is no frame. Nothing more can be read.
                Frames before it are returned first.
        """
        if self._came:
            self._came += received
            if len(self._came) < self._needed_bytes:
                return []
            came = bytes(self._came)
        else:
            came = received
        frames: list[Frame] = []
        at, end = 0, len(came)
        self._needed_bytes = HEADER_BYTES
        unpack = _HEADER.unpack_from
        while end - at >= HEADER_BYTES:
            flags, kind, size, zero, track, channel, zeros = unpack(came, at)
            if (
                flags > ALONE
                or kind > _MOST_TYPE
                or zero
                or zeros
                or track != (kind != _CONTROL)
                or not HEADER_BYTES <= size <= self.max_frame_bytes
            ):
                self._needed_bytes, self._came = 0, bytearray(came[at:])
                if not frames:
                    raise self._refusal(flags, kind, size, track)
                return frames
            if end - at < size:
                self._needed_bytes = size
                break
            frames.append(Frame(kind, flags, channel, came[at + HEADER_BYTES : at + size]))
            at += size
        self._came = bytearray(came[at:])
        return frames

    def _refusal(self, flags: int, kind: int, size: int, track: int) -> RemoteFramingError:
        if flags > ALONE:
            return RemoteFramingError(f"a frame with reserved flags: {flags:#04x}")
        if kind > _MOST_TYPE:
            return RemoteFramingError(f"a frame of segment type {kind}")
        if not HEADER_BYTES <= size <= self.max_frame_bytes:
            most = self.max_frame_bytes
            return RemoteFramingError(
                f"a frame of {size} bytes: {HEADER_BYTES} to {most} are taken"
            )
        if track != (kind != _CONTROL):
            return RemoteFramingError(f"a frame of segment type {kind} on track {track}")
        return RemoteFramingError("a frame with reserved bits that are not zero")
