"""The unsettled maps of attaches: whether one is right, and how much of one fits a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_shim.amqp_1_0.composites import COMPOSITES, PROVIDERS, Attach
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.frames import encoded_frame

MAX_TAG_BYTES = 32
"""Of a delivery's tag (2.8.7)."""

_MAP_BYTES = 16
"""The map's own head, and the flag after it."""


def fitting(attach: Attach, unsettled: Mapping[bytes, Any], frame_bytes: int) -> dict[bytes, Any]:
    """Return the first entries of `unsettled` that fit a frame with the rest of `attach`.

    Raises:
        InvalidCommand: A state, or a field of `attach`, cannot be encoded.
    """
    left = frame_bytes - len(encoded_frame(attach)) - _MAP_BYTES
    entries: dict[bytes, Any] = {}
    for tag, state in unsettled.items():
        left -= len(write(tag)) + len(write(state))
        if left < 0:
            break
        entries[tag] = state
    return entries


def wrong_with(unsettled: Mapping[Any, Any]) -> str | None:
    """Return why what a peer sent is no unsettled map; None if it is one."""
    if all(
        isinstance(tag, bytes) and len(tag) <= MAX_TAG_BYTES and (state is None or _is_state(state))
        for tag, state in unsettled.items()
    ):
        return None
    return f"an unsettled map has tags of at most {MAX_TAG_BYTES} bytes and delivery states"


def _is_state(value: Any) -> bool:
    return isinstance(value, _STATES)


_STATES = tuple(kind for kind in COMPOSITES.values() if kind.NAME in PROVIDERS["delivery-state"])
