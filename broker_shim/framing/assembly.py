"""A control or command with what belongs to it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from broker_shim.amqp_0_10.definitions import SegmentType
from broker_shim.framing.frames import (
    FIRST_FRAME,
    FIRST_SEGMENT,
    HEADER_BYTES,
    LAST_FRAME,
    LAST_SEGMENT,
    MOST_FRAME_BYTES,
    Frame,
)
from broker_shim.framing.methods import Method
from broker_shim.framing.methods import encoded_method as encoded
from broker_shim.framing.order import FrameOrder, FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment, MethodSegment

_CONTROL, _COMMAND, _HEADER, _BODY = (int(kind) for kind in SegmentType)
_WHOLE = FIRST_FRAME | LAST_FRAME
_FIRST_OF_SOME = FIRST_SEGMENT | _WHOLE
_LAST_OF_SOME = LAST_SEGMENT | _WHOLE


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

    @property
    def is_control(self) -> bool:
        """True for a control, which has no number and no content."""
        return self.method.NAME.startswith(("connection.", "session."))


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

    def take_whole(self, frames: deque[Frame]) -> Assembly | None:
        """Return the command that the first frame begins, if the next frames are all of the rest.

        That is how nearly all messages come: a frame each for command, header and body. Those are
        taken off, and header and body attached; what is anything else is for `take`, frame by
        frame.

        Raises:
            RemoteCommandError: It is no command; its frames are taken off.
        """
        whole = _whole_message(frames)
        if whole is None:
            return None
        (kind, _, channel, payload), header, body = whole
        order = self._orders.get(channel << 1)
        body_bytes = 0 if body is None else len(body.payload)
        if order is None or not order.fits_whole(len(payload), len(header.payload), body_bytes):
            return None
        for _ in range(2 if body is None else 3):
            frames.popleft()
        last = self._last
        if last is None or last[0] != payload:  # a client says the same of most of its messages
            last = self._last = (payload, *MethodSegment(kind, payload).read())
        return Assembly(
            channel,
            last[1],
            last[2],
            header=HeaderSegment(header.payload),
            body=None if body is None else BodySegment(body.payload),
        )

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


def _whole_message(frames: deque[Frame]) -> tuple[Frame, Frame, Frame | None] | None:
    """Command, header and body, if some frames begin with all of these in a frame each."""
    first = frames[0]
    if first.type != _COMMAND or first.flags != _FIRST_OF_SOME or len(frames) < 2:
        return None
    header, channel = frames[1], first.channel
    if header.type != _HEADER or header.channel != channel:
        return None
    if header.flags == _LAST_OF_SOME:
        return first, header, None
    if header.flags != _WHOLE or len(frames) < 3:
        return None
    body = frames[2]
    is_last = body.type == _BODY and body.channel == channel and body.flags == _LAST_OF_SOME
    return (first, header, body) if is_last else None


def frames_of(
    assembly: Assembly,
    max_frame_bytes: int = MOST_FRAME_BYTES,
    encoded_method: bytes | None = None,
) -> Iterator[Frame]:
    """The frames of an assembly, with the header and body that are attached to it.

    Args:
        assembly: What is sent.
        max_frame_bytes: Most bytes of a frame with its header.
        encoded_method: The segment of its method, if that was encoded before.

    Raises:
        LocalFramingError: A value of the method does not fit its field.
    """
    kind = _CONTROL if assembly.is_control else _COMMAND
    segments = [(kind, encoded_method or encoded(assembly.method, sync=assembly.sync))]
    if assembly.header is not None:
        segments.append((_HEADER, assembly.header.payload))
    if assembly.body is not None:
        segments.append((_BODY, assembly.body.payload))
    room = max_frame_bytes - HEADER_BYTES
    last = len(segments) - 1
    for index, (kind, payload) in enumerate(segments):
        is_last = index == last and assembly.is_whole  # else frames follow that nobody attached
        flags = (0 if index else FIRST_SEGMENT) | (LAST_SEGMENT if is_last else 0)
        if len(payload) <= room:
            yield Frame(kind, flags | _WHOLE, assembly.channel, payload)
        else:
            yield from _split(kind, flags, assembly.channel, payload, room)


def _split(kind: int, flags: int, channel: int, payload: bytes, room: int) -> Iterator[Frame]:
    for at in range(0, len(payload), room):
        place = (0 if at else FIRST_FRAME) | (LAST_FRAME if at + room >= len(payload) else 0)
        yield Frame(kind, flags | place, channel, payload[at : at + room])
