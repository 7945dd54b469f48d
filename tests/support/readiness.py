"""Wait until a descriptor is ready, whatever its number: `select` refuses those above 1,023."""

from __future__ import annotations

import select
from typing import Protocol


class HasDescriptor(Protocol):
    """A socket, or what else the system can be asked about."""

    def fileno(self) -> int:
        """Return the number of the descriptor."""


def is_ready(waited: HasDescriptor, timeout_s: float, *, to_write: bool = False) -> bool:
    """True once it can be read, or written; False if it cannot for so many seconds."""
    poller = select.poll()
    poller.register(waited.fileno(), select.POLLOUT if to_write else select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))
