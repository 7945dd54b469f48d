"""Decimals of AMQP 1.0 are the numbers that IEEE 754-2008 says."""

from __future__ import annotations

import pytest

from broker_shim.stored_values import decimal_of


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        ("32800001", "1"),
        ("b2800001", "-1"),
        ("31800001", "0.01"),
        ("32800000", "0"),
        ("77f8967f", "9.999999E+96"),  # the largest: its coefficient has the bits 100 first
        ("00000001", "1E-101"),
        ("6cb8967f", "9999999"),
        ("6cb89680", "0"),  # ten million has eight digits
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
        ("fc000001", "NaN"),
        ("7e000000", "NaN"),
        ("31c0000000000001", "1"),
        ("31800000000004d2", "12.34"),
        ("77fb86f26fc0ffff", "9.999999999999999E+384"),
        ("30400000000000000000000000000001", "1"),
        ("303a000000000000000000000000007b", "0.123"),
        ("6c100000000000000000000000000000", "0"),
    ],
)
def test_a_decimal_is_its_number(encoded: str, text: str) -> None:
    assert str(decimal_of(bytes.fromhex(encoded))) == text
