"""The last handler of what goes out: assemblies and frames become bytes."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.amqp_0_10.commands import MessageTransfer
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.frames import MOST_FRAME_BYTES, Frame
from broker_shim.framing.methods import encoded_method


class SessionOutgoing:
    """Session outgoing, an `AssemblyHandler`: the standard handler there.

    Attributes:
        max_frame_bytes: Most bytes of a frame with its header, as was agreed with the peer.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.max_frame_bytes = MOST_FRAME_BYTES
        self._last_transfer: tuple[str | None, int, int] | None = None
        self._encoded_transfer = b""

    def handle_assembly(self, assembly: Assembly) -> None:
        """Write an assembly in frames of at most `max_frame_bytes`."""
        frames = frames_of(assembly, self.max_frame_bytes, self._encoded(assembly))
        self._write(b"".join([frame.encoded for frame in frames]))

    def _encoded(self, assembly: Assembly) -> bytes | None:
        """Encode a transfer's method, once for transfers that say the same: nearly all do."""
        method = assembly.method
        if type(method) is not MessageTransfer or assembly.sync:
            return None
        transfer = method.destination, method.accept_mode, method.acquire_mode
        if transfer != self._last_transfer:
            self._last_transfer, self._encoded_transfer = transfer, encoded_method(method)
        return self._encoded_transfer

    def handle_frame(self, frame: Frame) -> None:
        """Write one frame as it is."""
        self._write(frame.encoded)
