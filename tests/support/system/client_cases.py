"""Messages of every kind that AMQP has, as the programs of `programs/` are told them. Data only.

Values are `[type, content]`: programs/README.md says how each type is written.
"""

from __future__ import annotations

import struct
from typing import Any

Value = list[Any]
Told = dict[str, Any]


def float32(number: float) -> Value:
    """A float by its bits."""
    return ["float", struct.pack(">f", number).hex()]


def float64(number: float) -> Value:
    """A double by its bits."""
    return ["double", struct.pack(">d", number).hex()]


def text(content: str) -> Value:
    """A string."""
    return ["string", content]


NAN = float("nan")
INF = float("inf")
UUID_HEX = "0123456789abcdeffedcba9876543210"
LONG_TEXT = "Grüße, 世界 \U0001f600 " * 40
"""More than 255 bytes, so that its length takes four bytes."""
ALL_BYTES = bytes(range(256)).hex()

SIMPLE: dict[str, list[Value]] = {
    "null": [["null"]],
    "boolean": [["boolean", True], ["boolean", False]],
    "ubyte": [["ubyte", n] for n in ("0", "127", "255")],
    "ushort": [["ushort", n] for n in ("0", "256", "65535")],
    "uint": [["uint", n] for n in ("0", "1", "255", "256", "4294967295")],
    "ulong": [["ulong", n] for n in ("0", "255", "256", "9007199254740991", str(2**64 - 1))],
    "byte": [["byte", n] for n in ("-128", "-1", "0", "127")],
    "short": [["short", n] for n in ("-32768", "-1", "0", "32767")],
    "int": [["int", n] for n in ("-2147483648", "-129", "-128", "0", "127", "2147483647")],
    "long": [["long", str(n)] for n in (-(2**63), -(2**53) + 1, -129, -1, 0, 128, 2**63 - 1)],
    "float": [float32(n) for n in (0.0, -0.0, 1.5, -3.25e38, 1e-45, INF, -INF, NAN)],
    "double": [float64(n) for n in (0.0, -0.0, 0.1, -1.7e308, 5e-324, INF, -INF, NAN)],
    "char": [["char", ord(c)] for c in ("A", "ß", "世")],
    "wide char": [["char", 0x1F600]],
    "timestamp": [["timestamp", n] for n in ("0", "-1", "1800000000123", "253402300799999")],
    "uuid": [["uuid", UUID_HEX], ["uuid", "0" * 32]],
    "binary": [["binary", content] for content in ("", "00", "ff" * 255, ALL_BYTES)],
    "string": [text(content) for content in ("", "a\0b", "x" * 255, LONG_TEXT)],
    "symbol": [["symbol", content] for content in ("", "text/plain", "s" * 256)],
}
"""By type, with the ends of its range and of each of its encodings."""

EVERYWHERE = tuple(name for name in SIMPLE if name not in {"char", "wide char", "binary", "symbol"})
"""Types that every client can have inside a list."""

NESTED = [
    "map",
    [
        [text("list"), ["list", [["int", "1"], ["list", []], ["map", []], ["null"]]]],
        [text("map"), ["map", [[text("deep"), ["list", [["map", [[text("d"), text("e")]]]]]]]]],
        [text("flag"), ["boolean", True]],
    ],
]
KEYS = [
    "map",
    [
        [["int", "-7"], text("int")],
        [["boolean", True], text("boolean")],
        [["ulong", "8"], text("ulong")],
        [text("s"), text("string")],
    ],
]


def nested(depth: int) -> Value:
    """Maps in maps."""
    value = text("end")
    for _ in range(depth):
        value = ["map", [[text("k"), value]]]
    return value


WIDE = ["list", [["long", str(n * 1000)] for n in range(300)]]
FLAT = ["map", [[text("s"), text("v")], [text("n"), ["int", "5"]], [text("b"), ["binary", "00ff"]]]]
SEQUENCE = [text("a"), ["int", "1"], ["boolean", True], float64(0.5), ["binary", "01"], ["null"]]

BODIES: dict[str, Told] = {
    "one data": {"data": ["00ff10"]},
    "empty data": {"data": [""]},
    "large data": {"data": [ALL_BYTES * 300]},
    "several data": {"data": ["01", "", "0203"]},
    "one sequence": {"sequence": [SEQUENCE]},
    "empty sequence": {"sequence": [[]]},
    "several sequences": {"sequence": [[["int", "1"]], [], [text("x")]]},
    "flat map": {"value": FLAT},
    "empty map": {"value": ["map", []]},
    "nested map": {"value": NESTED},
    "map of any keys": {"value": KEYS},
    "empty list": {"value": ["list", []]},
    "nested list": {"value": ["list", [["list", [["list", [text("in")]]]], NESTED]]},
    "wide list": {"value": WIDE},
    "deep map": {"value": nested(60)},
    "every type in a list": {
        "value": ["list", [v for kind in EVERYWHERE for v in SIMPLE[kind]]],
    },
    "no body": {},
} | {f"value {name}": {"value": values[-1]} for name, values in SIMPLE.items()}

IDS: dict[str, Value] = {
    "string": text("order-7"),
    "prefixed": text("ID:order-7"),
    "empty": text(""),
    "ulong": ["ulong", "7"],
    "large ulong": ["ulong", str(2**64 - 1)],
    "uuid": ["uuid", UUID_HEX],
    "binary": ["binary", "00ff"],
}

PROPERTIES: Told = {
    "user_id": b"guest".hex(),
    "to": "somewhere",
    "subject": "a subject",
    "reply_to": "answers",
    "content_type": "application/x-own",
    "content_encoding": "gzip",
    "absolute_expiry_time": 4_000_000_000_123,
    "creation_time": 1_700_000_000_456,
    "group_id": "g",
    "group_sequence": 4_000_000_000,
    "reply_to_group_id": "h",
}
"""All that are neither message-id nor correlation-id."""

HEADERS: dict[str, Told] = {
    "durable": {"durable": True},
    "least priority": {"priority": 0},
    "most priority": {"priority": 9},
    "ttl": {"ttl": 3_600_000},
    "all": {"durable": True, "priority": 7, "ttl": 86_400_000},
}


def _cases() -> dict[str, Told]:
    found: dict[str, Told] = {f"body: {name}": {"body": body} for name, body in BODIES.items()}
    for name, values in SIMPLE.items():
        found[f"application: {name}"] = {"application": {f"p{n}": v for n, v in enumerate(values)}}
        found[f"annotation: {name}"] = {"annotations": {"x-opt-own": values[-1]}}
    for name, value in IDS.items():
        found[f"message-id: {name}"] = {"properties": {"message_id": value}}
        found[f"correlation-id: {name}"] = {"properties": {"correlation_id": value}}
    for name, content in PROPERTIES.items():
        found[f"property: {name}"] = {"properties": {name: content}}
    found["property: small group_sequence"] = {"properties": {"group_sequence": 7}}
    for name, header in HEADERS.items():
        found[f"header: {name}"] = {"header": header}
    found["names of 10,000 characters"] = {
        "properties": {"subject": "s" * 10_000, "group_id": "g" * 10_000},
        "application": {"n" * 10_000: text("v" * 10_000)},
    }
    found["everything"] = {
        "header": HEADERS["all"],
        "annotations": {"x-opt-a": text("b"), "x-opt-n": ["int", "1"]},
        "properties": PROPERTIES | {"message_id": IDS["string"], "correlation_id": IDS["uuid"]},
        "application": {"carrier": text("AA"), "late": ["boolean", True], "stops": ["int", "0"]},
        "body": BODIES["one data"],
    }
    return {name: {"body": {"value": text("body")}} | case for name, case in found.items()}


CASES = _cases()
"""By name; each is sent as one message."""
