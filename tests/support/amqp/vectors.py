"""Values of AMQP 1.0 with their bytes, as the specification draws them."""

from __future__ import annotations

from uuid import UUID

from broker_shim.amqp_1_0.composites import (
    Accepted,
)
from broker_shim.amqp_1_0.primitives import (
    Byte,
    Char,
    Decimal32,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from broker_shim.protocol_1_0.codec.values import Array, Described

VECTORS = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(7), "5007"),
    (UShort(258), "600102"),
    (UInt(0), "43"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (ULong(0), "44"),
    (ULong(1 << 63), "808000000000000000"),
    (Byte(-1), "51ff"),
    (Short(-2), "61fffe"),
    (Int(-1), "54ff"),
    (Int(128), "7100000080"),
    (-128, "5580"),
    (1 << 40, "810000010000000000"),
    (Float(1.5), "723fc00000"),
    (1.5, "823ff8000000000000"),
    (Decimal32(b"abcd"), "7461626364"),
    (Char("é"), "73000000e9"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (UUID(int=1), "98" + "00" * 15 + "01"),
    (b"ab", "a0026162"),
    (b"x" * 256, "b000000100" + "78" * 256),
    ("é", "a102c3a9"),
    (Symbol("s"), "a30173"),
    ([], "45"),
    ([None, True], "c003024041"),
    ({"k": True}, "c10502a1016b41"),
    (Array("symbol", ("a", "b")), "e00c02b3" + "0000000161" + "0000000162"),
    (Array("boolean", (True, False)), "e00402560100"),
    (Described(Symbol("d"), "v"), "00a30164a10176"),
    (Accepted(), "00532445"),
]
