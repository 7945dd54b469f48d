"""The one frame that comes a hundred thousand times a second, many of them read at once. Pure.

Frames of one link that bring a whole delivery each, with their fields as all clients write them,
are read here by place, one after the other. Whatever is not exactly that ends the run, and is left
to the readers that the table makes: they say what it is, and what is wrong with it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_START = struct.Struct(">IBBH4sBB").unpack_from
_PLAIN = bytes((0, 0x53, 0x14, 0xC0))
_START_BYTES = 14
_WIDTHS = {0x43: 0, 0x52: 1, 0x70: 4}
_BOOLEANS = {0x41: True, 0x42: False}
_VBIN8, _FALSE = 0xA0, 0x42

WholeDelivery = tuple[int, bytes, bool, bytes]
"""Delivery id, tag, whether it is settled, and payload; a plain tuple, as one is made of each."""


_OfHandle = tuple[int, WholeDelivery]


class WholeDeliveries(NamedTuple):
    """Frames of one link that follow each other and bring a whole delivery each.

    Attributes:
        channel: That they came on.
        handle: The handle of the link.
        deliveries: What they bring.
        end: Where the last of them ends.
    """

    channel: int
    handle: int
    deliveries: list[WholeDelivery]
    end: int


def whole_deliveries(
    encoded: bytes, at: int, max_frame_bytes: int, most: int
) -> WholeDeliveries | None:
    """The next frames, at most so many, as far as they are such; None if the first is not.

    Args:
        encoded: Bytes as they came.
        at: Where the first frame begins.
        max_frame_bytes: A larger one is no such frame.
        most: Take no more of them.
    """
    deliveries: list[WholeDelivery] = []
    size, of = len(encoded), None
    while len(deliveries) < most and size - at > _START_BYTES:
        frame_bytes, doff, kind, channel, start, list_bytes, count = _START(encoded, at)
        body, end = at + _START_BYTES, at + frame_bytes
        if start != _PLAIN or kind or doff != 2 or frame_bytes > max_frame_bytes or end > size:
            break
        try:
            handle, delivery = _whole(encoded, body, count, body + list_bytes - 1, end)
        except (KeyError, IndexError):
            break
        if of is None:
            of = channel, handle
        elif of != (channel, handle):
            break
        deliveries.append(delivery)
        at = end
    return None if of is None else WholeDeliveries(*of, deliveries, at)


def _whole(encoded: bytes, at: int, count: int, fields_end: int, end: int) -> _OfHandle:
    """The handle and the delivery of a frame: handle, id, tag, format, settled, perhaps more.

    Args:
        encoded: Bytes that hold the frame.
        at: Where its first field begins.
        count: How many fields it says it has.
        fields_end: Where they end, and the payload begins.
        end: Where it ends.

    Raises:
        KeyError, IndexError: It is not exactly that.
    """
    number = int.from_bytes
    width = _WIDTHS[encoded[at]]
    tagged = at + 1 + width
    handle = number(encoded[at + 1 : tagged], "big")
    width = _WIDTHS[encoded[tagged]]
    at, tagged = tagged, tagged + 1 + width
    delivery_id = number(encoded[at + 1 : tagged], "big")
    at = tagged + 2 + encoded[tagged + 1]
    tag = encoded[tagged + 2 : at]
    last = at + 1 + _WIDTHS[encoded[at]]
    settled = _BOOLEANS[encoded[last]]
    is_plain = (
        encoded[tagged] == _VBIN8
        and not any(encoded[at + 1 : last])  # the format: 0 is AMQP's own, and all that is common
        and (count == 5 or (count == 6 and encoded[last + 1] == _FALSE))  # no more to come
        and last + count - 4 == fields_end <= end
    )
    if not is_plain:
        raise KeyError(count)
    return handle, (delivery_id, tag, settled, encoded[fields_end:end])
