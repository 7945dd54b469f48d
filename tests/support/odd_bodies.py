"""Bodies in JSON, or nearly, that readers of JSON understand in different ways."""

from __future__ import annotations

import random
from pathlib import Path

from sparkstore.core.records import (
    MessageHeader,
    ids_reserved,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.tables.root import Root
from tests.support.histories.histories import History, Layers, Row
from tests.support.roots.roots import build_root

SCHEMA = (
    "t TINYINT, i INT, n BIGINT, f FLOAT, d DOUBLE, c DECIMAL(6,2), e DECIMAL, w DECIMAL(38,10),"
    " b BOOLEAN, s STRING, y DATE, z TIMESTAMP, l TIMESTAMP_NTZ, a ARRAY<BIGINT>,"
    " m MAP<STRING, STRING>, r STRUCT<n: BIGINT, s: STRING>"
)
FIELDS = "tinfdcewbsyzlamr"
VALUES = [
    *("12", "-7", "0", "-0", "1.0", "1e3", "1E-2", "0.1", "2.675", "127", "128", "-129", "1e400"),
    *("2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808", "1e39"),
    *("12345678901234567.89", "16777217", "-0.0", "5e-324", "123456789012345678901234567890"),
    *("9999.994", "9999.995", "9" * 40, "01", "+1", "1.", ".5", "0x10", "NaN", "Infinity"),
    *("true", "false", "null", "True", "nan"),
    *('"12"', '"true"', '""', '"NaN"', '"ü"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\u0000"', "'x'"),
    *('"2026-02-29"', '"2024-02-29"', '"2026-2-1"', '"20260101"', '"0001-01-01"', '"9999-12-31"'),
    *('"2026-01-02T03:04:05Z"', '"2026-01-02 03:04:05.678901"', '"2026-01-02T03:04:05+02:00"'),
    *('"2026-01-02T03:04"', '"2026-01-02T24:00:00Z"', '"2026-01-02t03:04:05.1234567z"', '"now"'),
    *('"0001-01-01T00:00:00+14:00"', '"1582-10-10"', '"1883-11-18T12:03:58Z"', '"epoch"'),
    *("[]", "[1]", '[1, "2", 2.0, null]', "[[1]]", "{}", '{"n": 1}', '{"n": "1", "s": 1}'),
    *('{"n": 1, "n": 2}', '{"s": [1, {"x": null}]}', '{"\\ud83d": 1, "k": true}', "[1,]", '{"a":}'),
]
WHOLE = [
    *("", " ", "x", "{", "[1]", "12", "null", '"text"', "{}", "[]", "\ufeff{}", "{'n': 12}"),
    *('{"n": 7} x', '{"n": 7}{"n": 8}', '{"n": 1, "n": 2}', '{"n": 1, "n": null}', '{"N": 13}'),
    *('{"s": "\\ud83d", "n": 13}', '{"s": "a\tb", "n": 1}', '{"s": "a\\tb", "n": 1}', "/**/{}"),
    *(' \n{"n" : 5}\n', '\u00a0{"n": 5}', '{"n": 5,}', "{n: 5}", "[" * 3000, '{"r": ' * 1500),
    *('{"n": 1} // x', '{"a": [1, 2', '{"n": 1\u0000}', '{"\\u006e": 14}', '{"n": 1.0e0}'),
]


def odd_bodies(chance: random.Random, count: int) -> list[str]:
    """Return those that are known to be odd, each value for each field, and some of chance."""
    alone = [f'{{"{field}": {value}}}' for field in FIELDS for value in VALUES]
    drawn = [
        "{" + ", ".join(f'"{name}": {chance.choice(VALUES)}' for name in fields) + "}"
        for fields in (chance.choices(FIELDS, k=chance.randint(1, 6)) for _ in range(count))
    ]
    return [*WHOLE, *alone, *drawn]


def odd_root(path: Path, bodies: list[str]) -> Root:
    """Put bodies on a queue, with ids from 1."""
    records = [opened(1, "w"), ids_reserved(1, len(bodies) + 1), queue_created(1, "q", "{}")]
    for message_id, text in enumerate(bodies, 1):
        body = text.encode()
        header = MessageHeader(
            "raw", b"h", message_type="text", header_bytes=1, body_bytes=len(body)
        )
        records.append(message_enqueued(2, "q", message_id, header, body))
    numbered = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    return build_root(path, Layers(History(numbered), 0, 0, 1, 100_000))
