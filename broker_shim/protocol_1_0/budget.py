"""How much of a peer's begins and attaches one connection remembers."""

from __future__ import annotations

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.errors import ProtocolViolation, Scope


class StateBudget:
    """Encoded bytes: what becomes of them here is some ten times as large.

    A limit of the number of links alone would not bound memory: an attach may be as large as a
    frame, with its filters, properties and unsettled map.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, byte_count: int) -> None:
        """Remember so much more.

        Raises:
            ProtocolViolation: resource-limit-exceeded, of the session: that is too much.
        """
        if self.used_bytes + byte_count > self._limit_bytes:
            text = f"links and sessions of more than {self._limit_bytes} bytes in all"
            raise ProtocolViolation(AmqpError.RESOURCE_LIMIT_EXCEEDED, text, Scope.SESSION)
        self.used_bytes += byte_count

    def give_back(self, byte_count: int) -> None:
        """So much is forgotten."""
        self.used_bytes -= byte_count
