"""Frames of one kind, put together. Pure.

A segment takes frames until its last one; whether they may follow one another, `order` says.
"""

from __future__ import annotations

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode, SegmentType
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties, Struct
from broker_shim.framing.errors import LocalFramingError, MalformedValue, RemoteCommandError
from broker_shim.framing.frames import Frame
from broker_shim.framing.methods import (
    Method,
    encoded_structs,
    read_command,
    read_control,
    read_structs,
)
from broker_shim.framing.values import UnknownStruct

_CONTROL = int(SegmentType.CONTROL)
_PIECE_BYTES = 48
"""What an object of bytes takes beside these, and its place in a list."""


class Segment:
    """The payloads of consecutive frames of one type.

    Attributes:
        type: What it is (`SegmentType`).
        is_complete: True once its last frame came.
        byte_count: Bytes of the payloads so far.
    """

    def __init__(self, kind: int, payload: bytes | None = None) -> None:
        """Begin a segment; with a payload it is complete."""
        self.type = kind
        self.is_complete = payload is not None
        self._payloads = [] if payload is None else [payload]
        self.byte_count = 0 if payload is None else len(payload)

    def add(self, frame: Frame) -> None:
        """Add the next frame of the segment.

        Raises:
            LocalFramingError: It is complete, or the frame belongs to another one.
        """
        if self.is_complete or frame.type != self.type:
            message = f"a frame of type {frame.type} is not of this segment of type {self.type}"
            raise LocalFramingError(message)
        if frame.payload:
            self._payloads.append(frame.payload)
            self.byte_count += len(frame.payload)
        self.is_complete = frame.is_last_of_segment

    @property
    def held_bytes(self) -> int:
        """Return the bytes in memory: a frame of one byte takes more than its byte."""
        return self.byte_count + _PIECE_BYTES * len(self._payloads)

    @property
    def payload(self) -> bytes:
        """The bytes of the segment that have come so far."""
        if len(self._payloads) != 1:
            self._payloads = [b"".join(self._payloads)]
        return self._payloads[0]


class MethodSegment(Segment):
    """The segment of a control or a command."""

    def read(self) -> tuple[Method, bool]:
        """The method, and whether its sender waits for its completion.

        Raises:
            RemoteFramingError: It is no control.
            RemoteCommandError: It is no command.
        """
        if self.type == _CONTROL:
            return read_control(self.payload), False
        return read_command(self.payload)


class HeaderSegment(Segment):
    """The structs that describe a message: read when first asked for, and then kept."""

    def __init__(self, payload: bytes | None = None) -> None:
        super().__init__(int(SegmentType.HEADER), payload)
        self._structs: list[Struct | UnknownStruct] | None = None

    @classmethod
    def of(cls, *structs: Struct | UnknownStruct) -> HeaderSegment:
        """The segment of some structs."""
        return cls(encoded_structs(structs))

    @property
    def structs(self) -> list[Struct | UnknownStruct]:
        """Decode the structs of the header, once.

        Raises:
            RemoteCommandError: They are none.
        """
        if self._structs is None:
            try:
                self._structs = read_structs(self.payload)
            except MalformedValue as reason:
                text = f"a message's header: {reason}"
                raise RemoteCommandError(ExecutionErrorCode.ILLEGAL_ARGUMENT, text) from reason
        return self._structs

    @property
    def delivery(self) -> MessageDeliveryProperties:
        """The delivery properties; without any, what their defaults say."""
        for struct in self.structs:
            if type(struct) is MessageDeliveryProperties:
                return struct
        return MessageDeliveryProperties()

    @property
    def message(self) -> MessageProperties:
        """The message properties; without any, none is said."""
        for struct in self.structs:
            if type(struct) is MessageProperties:
                return struct
        return MessageProperties()


class BodySegment(Segment):
    """The segment of a message's content."""

    def __init__(self, payload: bytes | None = None) -> None:
        super().__init__(int(SegmentType.BODY), payload)
