"""Decimals of AMQP 1.0 as numbers: IEEE 754-2008, binary integer decimal encoding. Pure.

    sign | 00…10 and the rest of the exponent | coefficient
    sign | 11 | exponent | coefficient, which begins with 100
    sign | 11110 | …     infinity
    sign | 11111 | …     no number

The protocol's decoder leaves decimals as bytes: nobody but SQL asks for their value.
"""

from __future__ import annotations

from decimal import Decimal

_EXPONENT_BITS = {4: 8, 8: 10, 16: 14}
_DIGITS = {4: 7, 8: 16, 16: 34}
_BIAS = {4: 101, 8: 398, 16: 6176}


def decimal_of(encoded: bytes) -> Decimal:
    """Return the number that 4, 8 or 16 bytes stand for; a coefficient of too many digits is 0."""
    width, bits = len(encoded), int.from_bytes(encoded)
    exponent_bits = _EXPONENT_BITS[width]
    rest = 8 * width - 1 - exponent_bits
    sign, above = bits >> (8 * width - 1), bits >> (8 * width - 6) & 0b11111
    if above >= 0b11110:
        return Decimal("NaN" if above & 1 else "-Infinity" if sign else "Infinity")
    coefficient = bits & (1 << rest) - 1
    if above >= 0b11000:
        rest -= 2
        coefficient = 0b100 << rest | bits & (1 << rest) - 1
    exponent = (bits >> rest & (1 << exponent_bits) - 1) - _BIAS[width]
    digits = str(coefficient)
    if len(digits) > _DIGITS[width]:
        digits = "0"
    return Decimal((sign, tuple(map(int, digits)), exponent))
