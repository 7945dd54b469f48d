"""What a client sends to a coordinator (4.2, 4.3): a message whose only value is the command."""

from __future__ import annotations

import broker_shim.protocol_1_0.codec.composites  # noqa: F401  # has `read` know declare and discharge
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
    values = [each for each in sections_of(encoded) if each.code == AMQP_VALUE_SECTION]
    if len(values) == 1:
        command, end = read(encoded, values[0].value)
        if isinstance(command, Declare | Discharge) and end == values[0].end:
            return command
    raise DecodeError("a message to a coordinator is an amqp-value: a declare or a discharge")
