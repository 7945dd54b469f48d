"""Define the errors of a peer or of ours, by what ends because of them."""

from __future__ import annotations

from broker_shim.amqp_0_10.definitions import ConnectionCloseCode, ExecutionErrorCode


class RemoteFramingError(Exception):
    """The peer's bytes are not AMQP 0-10: close its connection with this code.

    Attributes:
        code: The reply code that connection.close tells the peer.
        description: One line for people.
    """

    def __init__(
        self, description: str, code: ConnectionCloseCode = ConnectionCloseCode.FRAMING_ERROR
    ) -> None:
        super().__init__(description)
        self.code, self.description = code, description


class RemoteCommandError(Exception):
    """A command of the peer cannot be done: tell it by execution.exception, and end its session.

    Attributes:
        code: The error code that execution.exception tells the peer.
        description: One line for people.
        method_code: Class and code of the command (class << 8 | code); 0 if nobody knows it.
        field_index: The field that is wrong, from 1; 0 if none in particular.
    """

    def __init__(
        self,
        code: ExecutionErrorCode,
        description: str,
        method_code: int = 0,
        field_index: int = 0,
    ) -> None:
        super().__init__(description)
        self.code, self.description = code, description
        self.method_code, self.field_index = method_code, field_index


class LocalFramingError(ValueError):
    """The caller asked for bytes that AMQP 0-10 has no form for: fix the call."""


class MalformedValue(Exception):
    """Bytes that are no value of their type; the reader of the segment says what ends by it."""
