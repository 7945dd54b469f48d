"""A root whose messages have properties and bodies of many AMQP types."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from proton import Message, decimal64, symbol, timestamp, ubyte

from broker_shim.listener_1_0.messages.message import parse
from sparkstore.core.records import ids_reserved, message_enqueued, opened, queue_created
from sparkstore.tables.root import Root
from tests.support.histories.histories import History, Layers, Row
from tests.support.roots.roots import build_root

PROPERTIES = {
    "d": 301,
    "f": 2.5,
    "nothing": None,
    "b": b"\xff\x00",
    "t": timestamp(1_750_000_000_123),
    "ok": True,
    "s": "300",
    "u": uuid.UUID(int=5),
    "symbol": symbol("x"),
    "small": ubyte(7),
    "price": decimal64(0x3180_0000_0000_04D2),
}
BODIES: list[Any] = [
    {"a": [1, 2.5, None, b"\x01", timestamp(1000)], 3: "ü"},
    'te"xt',
    b"bytes",
    [1, [2, "x"]],
]


def typed_root(path: Path) -> Root:
    """One message for each body; the first two have a `d` of more than 300, the third has 300."""
    records = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
    told = [PROPERTIES, {"d": 1e6}, {"d": 300}, {"d": "many"}]
    for message_id, (properties, body) in enumerate(zip(told, BODIES, strict=True), 1):
        encoded = bytes(Message(body=body, properties=properties).encode())
        header, stored = parse(encoded, now_us=1)
        records.append(message_enqueued(2, "q", message_id, header, stored))
    numbered = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    return build_root(path / "typed", Layers(History(numbered), 0, 0, 1, 1000))
