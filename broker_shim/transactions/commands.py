"""What a client sends to a coordinator (4.2, 4.3): a message whose only value is the command."""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import Declare, Discharge
from broker_shim.amqp_1_0.definitions import AMQP_VALUE_SECTION
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import sections_of

MOST_BYTES = 4096
"""Of a command: an id has 32 bytes at most, and around it a client may write headers."""


def read_command(encoded: bytes) -> Declare | Discharge:
    """The command in a message to a coordinator.

    Raises:
        DecodeError: It is no message, or says something else than declare or discharge.
    """
    for code, _start, value, end in sections_of(encoded):
        if code == AMQP_VALUE_SECTION:  # of which a message has one at most
            command, read_to = read(encoded, value)
            if isinstance(command, Declare | Discharge) and read_to == end:
                return command
    raise DecodeError("a message to a coordinator is an amqp-value: a declare or a discharge")
