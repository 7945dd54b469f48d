"""The header codecs of a broker: of every protocol, also of one not spoken now.

A queue keeps what came over AMQP 0-10 when a broker without that port serves it; and a service that
decides for members has what came to them. Their selectors, and clients of AMQP 1.0, see properties
with the types that the sender gave them all the same.
"""

from __future__ import annotations

from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.messages.header import HeaderReader
from broker_shim.messages.neutral import READERS, NeutralHeader
from broker_shim.store.interface import MessageHeader

_OLDER = "amqp-0-10"


def all_headers() -> HeaderReader:
    """Return a broker's reader of headers; from now on it reads those of all protocols."""
    READERS.setdefault(_OLDER, _first_of_older)
    return AmqpCommonHeader


def _first_of_older(header: MessageHeader) -> NeutralHeader:
    """Imported with the first such message: most brokers have none, and start without it."""
    from broker_shim.listener_0_10.messages import message_headers as messages  # noqa: PLC0415

    return READERS[messages.PROTOCOL](header)
