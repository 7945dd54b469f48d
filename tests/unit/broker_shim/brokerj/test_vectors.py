"""The Broker-J plugin packs as `sparkstore.core.codec` does: what its Java tests compare with.

`vectors.properties` is what Python's msgpack makes of some values, in hexadecimal, the long ones as
`sha256:` and their digest; the Java tests pack the same.
After a change of the codec: `python -m tests.unit.broker_shim.brokerj.test_vectors` writes it anew.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack

from sparkstore.core.codec import packer
from sparkstore.core.records import Kind, MessageHeader, Record
from tests.support.checkout import CHECKOUT

VECTORS = CHECKOUT / "broker_shim" / "brokerj" / "src/test/resources/vectors.properties"

_INTEGERS = [
    *(0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1),
    *(-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)),
]
_TEXTS = [*("x" * n for n in (31, 32, 255, 256, 65535, 65536)), "Grüße, 日本 😀"]
_OTHERS = [None, True, False, *(bytes(n) for n in (0, 1, 255, 256, 65535, 65536))]
_KNOWN = MessageHeader(None, header_bytes=3, body_bytes=5)
_BODY = bytes([1, 2, 3, 4, 5])


def _records() -> dict[str, Record]:
    return {
        "created": Record(Kind.CREATED, 0, "q", detail="{}"),
        "destroyed": Record(Kind.DESTROYED, 0, "q"),
        "enqueued": Record(Kind.ENQUEUED, 0, "q", 7, message=_KNOWN, body=_BODY),
        "enqueued_staged": Record(Kind.ENQUEUED, 0, "q", 7, message=_KNOWN),
        "dequeued": Record(Kind.DEQUEUED, 0, "q", 7),
        "content": Record(Kind.CONTENT, 0, message_id=7, body=_BODY[2:], body_offset=2),
        "content_with_header": Record(
            Kind.CONTENT, 0, message_id=7, message=_KNOWN, body=_BODY, body_offset=0
        ),
        "configured": Record(Kind.CONFIGURED, 0, exchange="link", binding_key="k", detail="{}"),
        "unconfigured": Record(Kind.UNCONFIGURED, 0, exchange="link", binding_key="k"),
    }


def _each(kind: Kind, contents: Any) -> tuple[Any, ...]:
    """The body of a frame of two requests, of messages 7 and 300."""
    return (1, Record(kind, 0, "q"), (7, 300), contents)


def vectors() -> dict[str, str]:
    pack_record = packer()
    values: dict[str, Any] = {
        "integers": _INTEGERS,
        "texts": ["", "a", *_TEXTS],
        "others": _OTHERS,
        **{f"array{n}": [None] * n for n in (0, 15, 16, 65535, 65536)},
        "each_enqueued": _each(Kind.ENQUEUED, (((None,), bytes([1, 2])), ((None,), None))),
        "each_dequeued": _each(Kind.DEQUEUED, None),
    }
    packed = {name: msgpack.packb(value, use_bin_type=True) for name, value in values.items()}
    packed |= {name: pack_record(record) for name, record in _records().items()}
    return {name: _shown(value) for name, value in packed.items()}


def _shown(packed: bytes) -> str:
    return packed.hex() if len(packed) < 500 else f"sha256:{hashlib.sha256(packed).hexdigest()}"


def _as_properties(found: dict[str, str]) -> str:
    return "".join(f"{name}={packed}\n" for name, packed in found.items())


def test_the_vectors_of_the_java_tests_are_what_python_packs() -> None:
    assert VECTORS.read_text() == _as_properties(vectors())


if __name__ == "__main__":
    VECTORS.write_text(_as_properties(vectors()))
