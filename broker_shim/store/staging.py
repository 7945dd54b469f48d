"""Content that comes in pieces: cut to record size, counted, and handed on as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker_shim.errors import InvalidRequest

PIECE_BYTES = 1 << 20
"""Largest piece of staged content in one record."""


def hand_on(pieces: Iterable[bytes], limit_bytes: int, take: Callable[[int, bytes], None]) -> int:
    """Call `take(body_offset, piece)` for each piece, none larger than `PIECE_BYTES`.

    Returns:
        Length of the whole content, at most `limit_bytes`.

    Raises:
        InvalidRequest: It is longer; what came before was taken.
    """
    body_bytes = 0
    for piece in _cut(pieces):
        check_size(body_bytes + len(piece), limit_bytes)
        take(body_bytes, piece)
        body_bytes += len(piece)
    return body_bytes


def gather(
    pieces: Iterable[bytes], limit_bytes: int, send: Callable[[int, bytes], None] | None
) -> tuple[int, bytes]:
    """`hand_on` to `send`, or keep the pieces together if there is none.

    Returns:
        Length of the whole content, and what was kept of it: all or nothing.
    """
    kept: list[bytes] = []

    def keep(_offset: int, piece: bytes) -> None:
        kept.append(piece)

    return hand_on(pieces, limit_bytes, send or keep), b"".join(kept)


def check_size(body_bytes: int, limit_bytes: int) -> None:
    """Raises InvalidRequest if content is longer than the limit."""
    if body_bytes > limit_bytes:
        message = f"message of {body_bytes} bytes: the limit is {limit_bytes}"
        raise InvalidRequest(message)


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES]
