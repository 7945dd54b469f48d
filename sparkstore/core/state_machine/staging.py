"""Limits of content that comes in pieces. Pure."""

from __future__ import annotations

from sparkstore.errors import InvalidRequest

PIECE_BYTES = 1 << 20
"""Largest piece of staged content in one record."""


def check_size(body_bytes: int, limit_bytes: int) -> None:
    """Raises InvalidRequest if content is longer than the limit."""
    if body_bytes > limit_bytes:
        message = f"message of {body_bytes} bytes: the limit is {limit_bytes}"
        raise InvalidRequest(message)
