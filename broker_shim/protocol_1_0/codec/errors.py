"""Define the errors of a peer or of ours, by what ends because of them."""

from __future__ import annotations

from enum import Enum

from broker_shim.amqp_1_0.composites import Error
from broker_shim.amqp_1_0.definitions import AmqpError


class Scope(Enum):
    """The scope that an error of the peer ends."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class ProtocolViolation(Exception):
    """The peer broke the protocol: end what `scope` says and tell it why.

    Attributes:
        condition: The specification's error condition, as `amqp:decode-error`.
        description: One line for people.
        scope: Whether the link, the session or the connection ends.
    """

    def __init__(self, condition: str, description: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.scope = scope

    @property
    def error(self) -> Error:
        """Return the error to send to the peer."""
        return Error(self.condition, self.description)


class DecodeError(ProtocolViolation):
    """The peer's bytes are not AMQP 1.0, not what belongs there, or more of it than is taken.

    The condition tells the last from the others: `amqp:resource-limit-exceeded`.
    """

    def __init__(self, description: str, condition: str = AmqpError.DECODE_ERROR) -> None:
        super().__init__(condition, description)


class InvalidCommand(ValueError):
    """The caller asked for what the protocol does not allow now: fix the call."""
