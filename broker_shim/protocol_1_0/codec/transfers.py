"""The one performative that comes a hundred thousand times a second, read the short way.

A first or only frame of a delivery, with its fields as all clients write them, is read here by
place; whatever is not exactly that is left to the reader that the table makes. Pure.
"""

from __future__ import annotations

import struct
from typing import Any

from broker_shim.amqp_1_0.composites import Transfer
from broker_shim.protocol_1_0.codec.decoder import Reader

_UINT_AT = struct.Struct(">I").unpack_from
_LIST8, _VBIN8, _UINT0, _SMALL_UINT, _UINT = 0xC0, 0xA0, 0x43, 0x52, 0x70
_BOOLEANS = {0x41: True, 0x42: False}


def quick_reader(general: Reader) -> Reader:
    """A reader of transfers that falls back on the general one."""

    def read(encoded: bytes, at: int, depth: int) -> tuple[Any, int]:
        try:
            found = _plain(encoded, at)
        except (IndexError, struct.error):  # it ends early: the general reader says where
            found = None
        return general(encoded, at, depth) if found is None else found

    return read


def _plain(encoded: bytes, at: int) -> tuple[Transfer, int] | None:
    """Handle, id, tag, format, settled and perhaps more; None if it is anything else.

    Raises:
        IndexError, struct.error: It is cut short.
    """
    count = encoded[at + 2]
    if encoded[at] != _LIST8 or not 5 <= count <= 6:
        return None
    handle, place = _uint(encoded, at + 3)
    delivery_id, tagged = _uint(encoded, place)
    first = tagged + 2
    place = first + encoded[first - 1]
    message_format, last = _uint(encoded, place)
    settled = _BOOLEANS.get(encoded[last])
    more = _BOOLEANS.get(encoded[last + 1]) if count == 6 else False
    end = at + 2 + encoded[at + 1]
    is_plain = encoded[tagged] == _VBIN8 and last + count - 4 == end
    if not is_plain or settled is None or more is None or min(handle, delivery_id) < 0:
        return None
    if message_format:  # 0 is AMQP's own, and all that is common
        return None
    return Transfer(handle, delivery_id, encoded[first:place], 0, settled, more), end


def _uint(encoded: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 if it is none."""
    code = encoded[at]
    if code == _UINT:
        return _UINT_AT(encoded, at + 1)[0], at + 5
    if code == _SMALL_UINT:
        return encoded[at + 1], at + 2
    return (0 if code == _UINT0 else -1), at + 1
