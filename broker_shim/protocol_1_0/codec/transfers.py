"""The one frame that comes a hundred thousand times a second, many of them read at once. Pure.

Frames of one link that bring a whole delivery each, with their fields as all clients write them,
are a run: the first is read by place, and the others have the same bytes around their ids and tags.
Whatever is not exactly that ends the run, and is left to the readers that the table makes: they say
what it is, and what is wrong with it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.serial import WRAP

_START = struct.Struct(">IBBH4sBB").unpack_from
_PLAIN = bytes((0, 0x53, 0x14, 0xC0))
_START_BYTES = 14
_WIDTHS = {0x43: 0, 0x52: 1, 0x70: 4}
_LAYOUTS = {0: "0s", 1: "B", 4: "I"}
_SETTLED = {b"": False, b"A": True, b"AB": True, b"B": False, b"BB": False}
"""What `settled` and `more` may be, as clients write them that leave out what is the default."""
_VBIN8 = 0xA0
_FALSE_OR_LEFT_OUT = b"\x40\x42"
_STATE_PLACE = 8
"""Fields up to the state of a delivery; the mode of its receiver before it is left out."""


class WholeDeliveries(NamedTuple):
    """A run of frames of one link that bring a whole delivery each; their ids rise by one.

    Attributes:
        channel: That they came on.
        handle: The handle of the link.
        first_id: The delivery id of the first.
        is_settled: All of them came settled; else none did.
        state: What their sender told of all of them: that they are of a transaction; None: nothing.
        encoded: Bytes that hold them, as they came.
        tags: The tag of each.
        starts: Where the payload of each begins.
        ends: Where it ends, and its frame with it.
    """

    channel: int
    handle: int
    first_id: int
    is_settled: bool
    state: TransactionalState | None
    encoded: bytes
    tags: list[bytes]
    starts: list[int]
    ends: list[int]

    def after(self, count: int) -> WholeDeliveries:
        """Return the run without its first deliveries."""
        return self._replace(
            first_id=(self.first_id + count) % WRAP,
            tags=self.tags[count:],
            starts=self.starts[count:],
            ends=self.ends[count:],
        )


class _Head(NamedTuple):
    """A frame up to its payload: its values, and where the bytes of id and tag are."""

    handle: int
    delivery_id: int
    is_settled: bool
    state: TransactionalState | None
    id_start: int
    id_end: int
    tag_start: int
    tag_end: int
    end: int


def whole_deliveries(
    encoded: bytes, at: int, max_frame_bytes: int, most: int
) -> WholeDeliveries | None:
    """The next frames, at most so many, as far as they are such a run; None if the first is not.

    Args:
        encoded: Bytes as they came.
        at: Where the first frame begins.
        max_frame_bytes: A larger one is no such frame.
        most: Take no more of them.
    """
    size = len(encoded)
    if size - at <= _START_BYTES:
        return None
    frame_bytes, doff, kind, channel, start, list_bytes, count = _START(encoded, at)
    if start != _PLAIN or kind or doff != 2 or at + frame_bytes > size:
        return None
    try:
        head = _head(encoded, at + _START_BYTES, count, at + _START_BYTES - 1 + list_bytes)
    except (KeyError, IndexError, DecodeError):
        return None
    id_layout = _LAYOUTS[head.id_end - head.id_start]
    layout = f">I{head.id_start - at - 4}s{id_layout}{head.tag_start - head.id_end}s"
    layout += f"{head.tag_end - head.tag_start}s{head.end - head.tag_end}s"
    around = (
        encoded[at + 4 : head.id_start],
        encoded[head.id_end : head.tag_start],
        encoded[head.tag_end : head.end],
    )
    delivery_id, head_bytes, unpack = head.delivery_id, head.end - at, struct.unpack_from
    tags, starts, ends = list[bytes](), list[int](), list[int]()
    while len(tags) < most and size - at >= head_bytes:
        frame_bytes, before, number, between, tag, behind = unpack(layout, encoded, at)
        end = at + frame_bytes
        if (before, between, behind) != around or not head_bytes <= frame_bytes <= max_frame_bytes:
            break
        if end > size or (number != delivery_id and tags):
            break
        tags.append(tag)
        starts.append(at + head_bytes)
        ends.append(end)
        delivery_id = (delivery_id + 1) % WRAP
        at = end
    if not tags:
        return None
    its = head.handle, head.delivery_id, head.is_settled, head.state
    return WholeDeliveries(channel, *its, encoded, tags, starts, ends)


def _head(encoded: bytes, at: int, count: int, end: int) -> _Head:
    """The first frame of a run: handle, id, tag, format, perhaps settled, perhaps more.

    Args:
        encoded: Bytes that hold the frame.
        at: Where its first field begins.
        count: How many fields it says it has.
        end: Where they end, and the payload begins.

    Raises:
        KeyError, IndexError, DecodeError: It is not exactly that.
    """
    number = int.from_bytes
    id_at = at + 1 + _WIDTHS[encoded[at]]
    tag_at = id_at + 1 + _WIDTHS[encoded[id_at]]
    tag_end = tag_at + 2 + encoded[tag_at + 1]
    last = tag_end + 1 + _WIDTHS[encoded[tag_end]]
    state = _transaction(encoded, last, end) if count == _STATE_PLACE else None
    is_settled = encoded[last] == ord("A") if state else _SETTLED[encoded[last:end]]
    is_plain = (
        encoded[tag_at] == _VBIN8
        and not any(encoded[tag_end + 1 : last])  # the format: 0 is AMQP's own, and common
        and (state is not None or last + count - 4 == end)
    )
    if not is_plain:
        raise KeyError(count)
    handle = number(encoded[at + 1 : id_at], "big")
    delivery_id = number(encoded[id_at + 1 : tag_at], "big")
    its = handle, delivery_id, is_settled, state
    return _Head(*its, id_at + 1, tag_at, tag_at + 2, tag_end, end)


def _transaction(encoded: bytes, at: int, end: int) -> TransactionalState:
    """The state behind `settled`, which is a transaction, and `more` and a mode that say nothing.

    Raises:
        KeyError, IndexError, DecodeError: It is not exactly that.
    """
    settled, more, mode = encoded[at : at + 3]
    state, state_end = read(encoded, at + 3)
    is_plain = settled in b"A" + _FALSE_OR_LEFT_OUT and more in _FALSE_OR_LEFT_OUT and mode == 0x40
    if not (is_plain and isinstance(state, TransactionalState) and state_end == end):
        raise KeyError(at)
    return state
