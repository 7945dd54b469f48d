"""Encoded messages that are told apart by a number, and little else."""

from __future__ import annotations

_HEAD = b"\x00Sp\xc0\x02\x01A\x00Su\xb0"
"""A durable message whose body is one binary: header section, then its data up to the length."""


def numbered(number: int, size: int) -> bytes:
    """A message of `size` bytes of content, at least 8, which begin with a number."""
    return _HEAD + size.to_bytes(4, "big") + number.to_bytes(8, "big") + bytes(size - 8)


def number_in(message: bytes) -> int:
    """The number of a message as a broker passes it on: its header section may differ."""
    at = message.index(b"\x00Su") + 3
    at += 2 if message[at] == 0xA0 else 5
    return int.from_bytes(message[at : at + 8], "big")
