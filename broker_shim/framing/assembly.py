"""A control or command with what belongs to it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from broker_shim.amqp_0_10.commands import MessageTransfer
from broker_shim.amqp_0_10.definitions import SegmentType
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.frames import (
    FIRST_FRAME,
    FIRST_SEGMENT,
    HEADER_BYTES,
    LAST_FRAME,
    LAST_SEGMENT,
    MOST_FRAME_BYTES,
    Frame,
    frame_header,
)
from broker_shim.framing.methods import Method, encoded_method
from broker_shim.framing.order import FrameOrder, FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment, MethodSegment
from broker_shim.framing.sequences import after

_CONTROL, _COMMAND, _HEADER, _BODY = (int(kind) for kind in SegmentType)
_WHOLE = FIRST_FRAME | LAST_FRAME
_FIRST_OF_SOME = FIRST_SEGMENT | _WHOLE
_LAST_OF_SOME = LAST_SEGMENT | _WHOLE
_AT_A_TIME = 64
"""Messages that are read together, before the turn's clock is looked at."""


@dataclass(slots=True)
class Assembly:
    """A method, which is always complete, and its header and body as far as anybody attached them.

    Whoever puts header or body together attaches them, and forwards no frames of them; whoever does
    not forwards the frames. So who needs one looks here first.

    Attributes:
        channel: The channel of its session.
        method: The control or command, decoded.
        sync: True if the sender of a command waits for its completion.
        is_whole: True if nothing of it is still to come, as frames of header or body.
        header: The complete header segment; None if it was not put together, or there is none.
        body: The complete body segment; as `header`.
        command_id: Its number in its session, once that is known; a control has none.
    """

    channel: int
    method: Method
    sync: bool = False
    is_whole: bool = True
    header: HeaderSegment | None = None
    body: BodySegment | None = None
    command_id: int | None = None

    def __len__(self) -> int:
        """The number of commands, or one control."""
        return 1

    @property
    def is_control(self) -> bool:
        """True for a control, which has no number and no content."""
        return self.method.NAME.startswith(("connection.", "session."))

    @property
    def content_bytes(self) -> int:
        """The bytes of header and body, as far as they are attached."""
        header, body = self.header, self.body
        return (0 if header is None else header.byte_count) + (
            0 if body is None else body.byte_count
        )

    def singles(self) -> Iterator[Assembly]:
        """Iterate over the commands, each with its header and body attached."""
        yield self

    def cut(self, count: int) -> Assembly:
        """Keep the first `count` commands, some but not all, and return the rest."""
        raise AssertionError(f"{self.method.NAME} is one command: {count} cannot be cut off")


@dataclass(slots=True)
class TransferRun(Assembly):
    """Transfers that follow each other and say the same, but for the message: one at least.

    Attributes:
        headers: The header segment of each, encoded.
        bodies: The body of each.
    """

    headers: Sequence[bytes] = ()
    bodies: Sequence[bytes] = ()

    def __len__(self) -> int:
        """The number of transfers."""
        return len(self.bodies)

    @property
    def content_bytes(self) -> int:
        """The bytes of all headers and bodies."""
        return sum(map(len, self.headers)) + sum(map(len, self.bodies))

    def cut(self, count: int) -> TransferRun:
        """Keep the first `count` transfers, and return the rest. See `Assembly.cut`."""
        rest = replace(self, headers=self.headers[count:], bodies=self.bodies[count:])
        if self.command_id is not None:
            rest.command_id = after(self.command_id, count)
        self.headers, self.bodies = self.headers[:count], self.bodies[:count]
        return rest

    def singles(self) -> Iterator[Assembly]:
        """Iterate over the transfers. See `Assembly.singles`."""
        for at, (header, body) in enumerate(zip(self.headers, self.bodies, strict=True)):
            yield Assembly(
                self.channel,
                self.method,
                self.sync,
                header=HeaderSegment(header),
                body=BodySegment(body),
                command_id=None if self.command_id is None else after(self.command_id, at),
            )

    def encoded(self, max_frame_bytes: int) -> bytes:
        """Encode the frames of all transfers in one pass."""
        room, channel = max_frame_bytes - HEADER_BYTES, self.channel
        method = Frame(
            _COMMAND, _FIRST_OF_SOME, channel, encoded_method(self.method, sync=self.sync)
        ).encoded
        parts = list[bytes]()
        for header, body in zip(self.headers, self.bodies, strict=True):
            if len(header) <= room and len(body) <= room:
                before_header = frame_header(_HEADER, _WHOLE, channel, len(header))
                before_body = frame_header(_BODY, _LAST_OF_SOME, channel, len(body))
                parts += (method, before_header, header, before_body, body)
            else:
                frames = [*_split(_HEADER, 0, channel, header, room)]
                frames += _split(_BODY, LAST_SEGMENT, channel, body, room)
                parts += (method, *(frame.encoded for frame in frames))
        return b"".join(parts)


class MethodReader:
    """Puts the methods in a stream of frames together; other frames go on as they are.

    Attributes:
        held_bytes: Bytes of methods that have not come whole.
    """

    def __init__(self, limits: FramingLimits) -> None:
        self.held_bytes = 0
        self._limits = limits
        self._orders: dict[int, FrameOrder] = {}
        self._segments: dict[int, MethodSegment] = {}
        self._last: tuple[bytes, Method, bool] | None = None

    def take_run(self, frames: deque[Frame]) -> TransferRun | None:
        """Return the messages that some frames begin with, if they are whole and say the same.

        That is how nearly all messages come: a frame each for command, header and body, the first
        of which a client repeats. Those are taken off, so many at once; what is anything else is
        for `take`, frame by frame.
        """
        kind, _flags, channel, payload = frames[0]
        order, headers, bodies = self._orders.get(channel << 1), list[bytes](), list[bytes]()
        while frames and order is not None and len(bodies) < _AT_A_TIME:
            content = _whole_message(frames, payload)
            if content is None or not order.fits_whole(len(payload), *map(len, content)):
                break
            if not bodies and not self._is_transfer(kind, payload):
                break
            for _ in range(3 if frames[1].flags == _WHOLE else 2):
                frames.popleft()
            headers.append(content[0])
            bodies.append(content[1])
        if not bodies or self._last is None:
            return None
        _payload, method, sync = self._last
        return TransferRun(channel, method, sync, headers=headers, bodies=bodies)

    def _is_transfer(self, kind: int, payload: bytes) -> bool:
        """True if a segment is that of a transfer, which is read if the last one was another."""
        if self._last is None or self._last[0] != payload:
            try:
                method, sync = MethodSegment(kind, payload).read()
            except RemoteCommandError:  # `take` says so
                return False
            if not isinstance(method, MessageTransfer):
                return False
            self._last = payload, method, sync
        return True

    def take(self, frame: Frame) -> Assembly | Frame | None:
        """Take a frame, and return what is complete by it.

        That is an assembly whose method is complete now, or a frame of its header or body; None if
        more of the method has to come.

        Raises:
            RemoteFramingError: The frame may not stand here, or is no control.
            RemoteCommandError: It is no command, or more of it than is taken.
        """
        kind, flags, channel, payload = frame
        key = channel << 1 | (kind == _CONTROL)
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = FrameOrder(self._limits)
        order.take(frame)
        if order.is_dropped:
            return None
        if kind >= _HEADER:
            return frame
        if flags & _WHOLE == _WHOLE:
            segment = MethodSegment(kind, payload)  # as nearly all are
        else:
            segment = self._segments.setdefault(key, MethodSegment(kind))
            self.held_bytes -= segment.held_bytes
            segment.add(frame)
            if not segment.is_complete:
                self.held_bytes += segment.held_bytes
                return None
            del self._segments[key]
        method, sync = segment.read()
        return Assembly(channel, method, sync, is_whole=order.is_between)

    def limit(self, limits: FramingLimits) -> None:
        """Set the limits from now on; no segment is under way."""
        self._limits = limits
        self._orders.clear()

    def drop(self, channel: int) -> None:
        """Drop what began on a channel: the rest of it leads to nothing."""
        for key in (channel << 1, channel << 1 | 1):
            segment = self._segments.pop(key, None)
            self.held_bytes -= 0 if segment is None else segment.held_bytes
            order = self._orders.get(key)
            if order is not None:
                order.is_dropped = not order.is_between


def _whole_message(frames: deque[Frame], method: bytes) -> tuple[bytes, bytes] | None:
    """Header and body, if some frames begin with this command and all of these, in a frame each."""
    first = frames[0]
    if first.type != _COMMAND or first.flags != _FIRST_OF_SOME or first.payload != method:
        return None
    if len(frames) < 2 or frames[1].type != _HEADER or frames[1].channel != first.channel:
        return None
    header = frames[1]
    if header.flags == _LAST_OF_SOME:
        return header.payload, b""
    if header.flags != _WHOLE or len(frames) < 3:
        return None
    body = frames[2]
    is_last = body.type == _BODY and body.flags == _LAST_OF_SOME
    return (header.payload, body.payload) if is_last and body.channel == first.channel else None


def frames_of(assembly: Assembly, max_frame_bytes: int = MOST_FRAME_BYTES) -> Iterator[Frame]:
    """The frames of an assembly, with the header and body that are attached to it.

    Args:
        assembly: What is sent.
        max_frame_bytes: Most bytes of a frame with its header.

    Raises:
        LocalFramingError: A value of the method does not fit its field.
    """
    kind = _CONTROL if assembly.is_control else _COMMAND
    segments = [(kind, encoded_method(assembly.method, sync=assembly.sync))]
    if assembly.header is not None:
        segments.append((_HEADER, assembly.header.payload))
    if assembly.body is not None:
        segments.append((_BODY, assembly.body.payload))
    room = max_frame_bytes - HEADER_BYTES
    last = len(segments) - 1
    for index, (kind, payload) in enumerate(segments):
        is_last = index == last and assembly.is_whole  # else frames follow that nobody attached
        flags = (0 if index else FIRST_SEGMENT) | (LAST_SEGMENT if is_last else 0)
        yield from _split(kind, flags, assembly.channel, payload, room)


def _split(kind: int, flags: int, channel: int, payload: bytes, room: int) -> Iterator[Frame]:
    for at in range(0, len(payload) or 1, room):
        place = (0 if at else FIRST_FRAME) | (LAST_FRAME if at + room >= len(payload) else 0)
        yield Frame(kind, flags | place, channel, payload[at : at + room])
