"""Check the order of frames, and the size of an assembly. Pure.

    assembly  =  method segment [header segment] [body segment]
    segment   =  first frame, any frames, last frame (one may be both)

All frames of a segment say the same of their segment: whether it is the first, the last of its
assembly. On one channel controls may stand between the frames of a command: they are on a track of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode, SegmentType
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import (
    FIRST_FRAME,
    FIRST_SEGMENT,
    HEADER_BYTES,
    LAST_FRAME,
    LAST_SEGMENT,
    MOST_FRAME_BYTES,
    Frame,
)

_CONTROL, _COMMAND, *_ = (int(kind) for kind in SegmentType)
_SEGMENT_FLAGS = FIRST_SEGMENT | LAST_SEGMENT
_END = LAST_SEGMENT | LAST_FRAME


@dataclass(frozen=True, slots=True)
class FramingLimits:
    """Limits of the frames and assemblies that a peer may send.

    Attributes:
        max_frame_bytes: Most bytes of one frame, with its header.
        max_method_bytes: Most bytes of a method segment.
        max_header_bytes: Most bytes of a header segment.
        max_assembly_bytes: Of an assembly, with the headers of its frames: so frames without a
            payload count, too.
        only_controls: Commands end the connection.
    """

    max_frame_bytes: int = MOST_FRAME_BYTES
    max_method_bytes: int = 1 << 20
    max_header_bytes: int = 1 << 20
    max_assembly_bytes: int = 1 << 28
    only_controls: bool = False


class FrameOrder:
    """Watches the frames of one channel and track.

    Attributes:
        is_between: True while no assembly is under way.
        is_dropped: The rest of the assembly that is under way is wanted by nobody: its frames
            still have to be in order, but there may be any number of them.
    """

    def __init__(self, limits: FramingLimits) -> None:
        self._most_of = (
            limits.max_method_bytes,
            limits.max_method_bytes,
            limits.max_header_bytes,
            limits.max_assembly_bytes,
        )
        self._most_together = limits.max_assembly_bytes
        self._only_controls = limits.only_controls
        self._most = 0
        self.is_between = True
        self.is_dropped = False
        self._is_in_segment = False
        self._type = self._segment_flags = 0
        self._segment_bytes = self._assembly_bytes = 0

    def fits_whole(self, method_bytes: int, header_bytes: int, body_bytes: int) -> bool:
        """Tell whether all of a command may come now, in a frame each, and is not too large."""
        most, _, most_of_header, _ = self._most_of
        together = method_bytes + header_bytes + body_bytes + 3 * HEADER_BYTES
        return (
            self.is_between
            and method_bytes <= most
            and header_bytes <= most_of_header
            and together <= self._most_together
        )

    def take(self, frame: Frame) -> None:
        """Check the next frame against those before it.

        Raises:
            RemoteFramingError: It may not stand here.
            RemoteCommandError: It is more of a command than is taken.
        """
        kind, flags, _, payload = frame
        if self._is_in_segment:
            if kind != self._type or flags & FIRST_FRAME:
                raise RemoteFramingError("a frame of another segment before the last one's end")
            if flags & _SEGMENT_FLAGS != self._segment_flags:
                raise RemoteFramingError("frames of one segment with different segment flags")
        else:
            self._begin(kind, flags)
        self._segment_bytes += len(payload)
        self._assembly_bytes += len(payload) + HEADER_BYTES
        self._is_in_segment = not flags & LAST_FRAME
        self.is_between = flags & _END == _END
        is_too_large = (
            self._segment_bytes > self._most or self._assembly_bytes > self._most_together
        )
        if is_too_large and not self.is_dropped:
            raise self._too_large()

    def _begin(self, kind: int, flags: int) -> None:
        """Check the first frame of a segment against the segment before it."""
        if not flags & FIRST_FRAME:
            raise RemoteFramingError("a segment that begins without its first frame")
        if self.is_between:
            if not flags & FIRST_SEGMENT or kind > _COMMAND:
                raise RemoteFramingError("an assembly that does not begin with a method")
            if kind == _COMMAND and self._only_controls:
                raise RemoteFramingError("a command before the connection is open")
            if kind == _CONTROL and not flags & LAST_SEGMENT:
                raise RemoteFramingError("a control with more than one segment")
            self._assembly_bytes = 0
            self.is_dropped = False
        elif flags & FIRST_SEGMENT or kind <= self._type or kind <= _COMMAND:
            raise RemoteFramingError("a segment that may not follow the one before it")
        self._type, self._segment_flags = kind, flags & _SEGMENT_FLAGS
        self._segment_bytes = 0
        self._most = self._most_of[kind]

    def _too_large(self) -> RemoteFramingError | RemoteCommandError:
        text = f"too large: more than {self._most_together} bytes in one assembly"
        if self._segment_bytes > self._most:
            text = f"too large: a segment of more than {self._most} bytes"
        if self._type == _CONTROL:
            return RemoteFramingError(text)
        return RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text)
