"""The last handler of what goes out: assemblies and frames become bytes."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.frames import MOST_FRAME_BYTES, Frame


class SessionOutgoing:
    """Session outgoing, an `AssemblyHandler`: the standard handler there.

    Attributes:
        max_frame_bytes: Of a frame with its header, as was agreed with the peer.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.max_frame_bytes = MOST_FRAME_BYTES

    def handle_assembly(self, assembly: Assembly) -> None:
        """See `AssemblyHandler`."""
        for frame in frames_of(assembly, self.max_frame_bytes):
            self._write(frame.encoded)

    def handle_frame(self, frame: Frame) -> None:
        """See `FrameHandler`."""
        self._write(frame.encoded)
