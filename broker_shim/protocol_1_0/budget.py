"""Limit the begins and attaches that one connection remembers, and its work at a time."""

from __future__ import annotations

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope

UNLIMITED = 1 << 62


class Budget:
    """Limits of what a peer may cost in memory and work.

    A limit of the number of links alone would not bound memory: an attach may be as large as a
    frame, with its filters, properties and unsettled map. Nor would one of the bytes that are read
    at a time bound work: a frame of thirty bytes may tell a state of all deliveries.

    Attributes:
        used_bytes: Memory used by what was decoded: a byte on the wire may be seventy here.
        work_left: Until the peer has to wait for its next turn; a piece of work is some 20 µs, and
            what was begun with one left is ended.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self.work_left = UNLIMITED

    def take(self, byte_count: int) -> None:
        """Remember so much more.

        Raises:
            ProtocolViolation: resource-limit-exceeded, of the session: that is too much.
        """
        if self.used_bytes + byte_count > self._limit_bytes:
            text = f"links and sessions that take more than {self._limit_bytes} bytes in all"
            raise ProtocolViolation(AmqpError.RESOURCE_LIMIT_EXCEEDED, text, Scope.SESSION)
        self.used_bytes += byte_count

    def give_back(self, byte_count: int) -> None:
        """Give back bytes that are forgotten."""
        self.used_bytes -= byte_count
