"""Frames that the service sends of its own accord, and who is told of them."""

from __future__ import annotations

from typing import Protocol

from broker_shim.store import protocol as wire

PUSHED = frozenset(
    {wire.CHANGES, wire.GRANTED, wire.ENDED, wire.CAUGHT_UP, wire.LOOKED, wire.ASKED}
)
"""Frames that are no answer."""


class ServiceListener(Protocol):
    """Told what the service says of its own accord, on the reading thread; it must be quick."""

    def connected(self, *, is_new_run: bool) -> None:
        """Hear of a connection, which knows nothing of what was said on an earlier one.

        Args:
            is_new_run: The service has started since the last one: what no restart survives is
                gone.
        """

    def hear(self, kind: int, body: wire.Body) -> None:
        """Hear of a frame of `PUSHED` that came."""
