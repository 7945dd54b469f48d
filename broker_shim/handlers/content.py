"""Header and body of commands, put together for whoever needs them and attached to the assembly."""

from __future__ import annotations

from broker_shim.amqp_0_10.definitions import SegmentType
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.framing.segments import BodySegment, HeaderSegment

_HEADER = int(SegmentType.HEADER)


class ContentCollector:
    """Collect a session's assemblies, one command after the other; a session's frames never mix.

    Whoever uses it asks `begin` with each assembly, and `add` with each frame while one `is_open`.
    """

    def __init__(self, *, wants_body: bool) -> None:
        """Begin without an assembly; unless `wants_body`, the frames of bodies are forwarded."""
        self._wants_body = wants_body
        self._assembly: Assembly | None = None
        self._header: HeaderSegment | None = None
        self._body: BodySegment | None = None

    @property
    def is_open(self) -> bool:
        """True while frames of an assembly are being put together."""
        return self._assembly is not None

    @property
    def held_bytes(self) -> int:
        """Return the bytes in memory of an assembly that is not whole yet."""
        parts = (self._header, self._body)
        return sum(part.held_bytes for part in parts if part is not None)

    def begin(self, assembly: Assembly) -> bool:
        """Begin a command; True if it has all that is wanted, False if frames of that follow.

        Somebody before may have attached the header, or both.
        """
        if assembly.is_whole or (assembly.header is not None and not self._wants_body):
            return True
        self._assembly, self._header, self._body = assembly, None, None
        return False

    def add(self, frame: Frame) -> tuple[Assembly | None, Frame | None]:
        """Add a frame to the assembly that is open.

        Returns:
            The assembly once it has all that is wanted; and the frame if it is to be forwarded
            after that, as it is of a body that is not wanted.
        """
        assembly = self._assembly
        assert assembly is not None, "ask `is_open` first"
        if frame.type == _HEADER:
            self._header = self._header or HeaderSegment()
            self._header.add(frame)
            if self._header.is_complete:
                assembly.header = self._header
        elif self._wants_body:
            self._body = self._body or BodySegment()
            self._body.add(frame)
            if self._body.is_complete:
                assembly.body = self._body
        else:  # a command with a body and no header
            self._assembly = None
            return assembly, frame
        assembly.is_whole = frame.is_last_of_assembly
        if assembly.is_whole or (assembly.header is not None and not self._wants_body):
            self._assembly = None
            return assembly, None
        return None, None

    def forget(self) -> None:
        """Forget the assembly that was begun."""
        self._assembly = self._header = self._body = None
