"""Reads the messages of one link: those of the shape of one before are read together. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.listener_1_0.messages.message import located
from broker_shim.listener_1_0.messages.message_shape import MessageRun, MessageShape, shape_of
from sparkstore.core.records import MessageHeader

_PASSES = 32
"""A shape is made anew after so many messages at the earliest, unless it was worth its making:
some senders change all fields."""
_STEPS = 10
"""Steps of a shape take as long as to parse a message, which is done to so few."""
_WORTH = 4
"""Messages that have a shape, for it to have been worth that."""


class MessageReader:
    """Reads messages, each with one before it in mind."""

    def __init__(self, most_header_bytes: int) -> None:
        """Begin with no message read; headers may be as long as `parse` is told."""
        self._most, self._passes = most_header_bytes, 0
        self._shape: MessageShape | None = None

    @property
    def header(self) -> MessageHeader | None:
        """The header of a message whose shape others may have; None while there is none."""
        return None if self._shape is None else self._shape.header

    def read(self, encoded: bytes, now_us: int) -> tuple[MessageHeader, bytes]:
        """The header and the content of a message that came at `now_us`, UTC µs.

        Raises:
            DecodeError: It is not a message, as `parse` says.
        """
        header, first, end = located(encoded, now_us=now_us, most_header_bytes=self._most)
        if self._passes:
            self._passes -= 1
        elif end == len(encoded):
            self._shape, self._passes = shape_of(header), _PASSES
        return header, encoded[first:end]

    def read_run(
        self, encoded: bytes, starts: Sequence[int], ends: Sequence[int]
    ) -> MessageRun | None:
        """Read messages that lie in these bytes, as far as they have the shape; None: none has."""
        if self._shape is None or len(starts) * _STEPS < len(self._shape.steps):
            return None
        run = self._shape.read(encoded, starts, ends, self._most)
        if len(run.contents) >= _WORTH:
            self._passes = 0
        return run if run.contents else None
