"""Bytes that wait to be written to the peer, as they were made."""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.amqp_1_0.composites import Composite, Open, Transfer
from broker_shim.amqp_1_0.definitions import MIN_MAX_FRAME_SIZE
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.codec.frames import AMQP_FRAME, encoded_frame, transfer_frame


class Output:
    """Frames and payload that wait to be written, in the order in which they go.

    Attributes:
        max_frame_bytes: What the peer takes; the specification's least until it said more.
        byte_count: Bytes that wait.
        made_bytes: All that were ever made, those that wait included.
        is_opened: True once our open was written, which goes before all frames but SASL's.
        is_closed: True once nothing may follow.
    """

    def __init__(self) -> None:
        self.max_frame_bytes = MIN_MAX_FRAME_SIZE
        self.byte_count = 0
        self.made_bytes = 0
        self.is_opened = False
        self.is_closed = False
        self._chunks: list[bytes | memoryview] = []

    def write(self, encoded: bytes) -> None:
        """Add bytes that are a header or a frame already."""
        self._chunks.append(encoded)
        self.byte_count += len(encoded)
        self.made_bytes += len(encoded)

    def frame(self, performative: Composite, channel: int = 0, kind: int = AMQP_FRAME) -> None:
        """Add a frame without payload.

        Raises:
            InvalidCommand: The connection is over, or not opened; the frame does not fit the
                peer's largest, or a field does not fit.
        """
        if self.is_closed:
            raise InvalidCommand("the connection is closed: nothing can follow")
        if not self.is_opened and kind == AMQP_FRAME and not isinstance(performative, Open):
            raise InvalidCommand("open the connection first")
        encoded = encoded_frame(performative, channel, kind)
        if len(encoded) > self.max_frame_bytes:
            text = f"{performative.NAME} of {len(encoded)} bytes: the peer takes "
            raise InvalidCommand(text + f"frames of {self.max_frame_bytes} at most")
        self.write(encoded)

    def transfer(self, channel: int, transfer: Transfer, pieces: list[bytes | memoryview]) -> None:
        """Add a transfer with its payload, which fits (`payload_room`)."""
        size = sum(map(len, pieces))
        head = transfer_frame(channel, transfer, size)
        self.write_all((head, *pieces), len(head) + size)

    def write_all(self, pieces: Sequence[bytes | memoryview], size: int) -> None:
        """Add pieces of `size` bytes in all that are frames together."""
        self._chunks += pieces
        self.byte_count += size
        self.made_bytes += size

    def payload_room(self, transfer: Transfer, wanted: int) -> int:
        """Return how many bytes of payload a frame of this transfer holds, at most `wanted`."""
        if wanted + MOST_TRANSFER_BYTES <= self.max_frame_bytes:
            return wanted
        return min(wanted, self.max_frame_bytes - len(transfer_frame(0, transfer, 0)))

    def take(self) -> list[bytes | memoryview]:
        """Hand out everything that waits, and start over."""
        taken, self._chunks, self.byte_count = self._chunks, [], 0
        return taken


MOST_TRANSFER_BYTES = 384
"""A transfer's head is never longer: a tag has 32 bytes at most, a state 256 (`sender`)."""
