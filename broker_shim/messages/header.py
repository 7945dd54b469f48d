"""The header of a message as selectors and routes see it, whatever protocol it came over. Pure.

The bytes of the header are the sender's, kept as they came; columns are what
`sparkstore.core.records.MessageHeader` shows of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparkstore.core.records import MessageHeader


class CommonHeader(Protocol):
    """The properties that selectors and views ask of a message of any protocol."""

    @property
    def steps(self) -> int:
        """Return the work of looking through the header, in steps of some µs."""

    def get(self, name: str) -> bool | int | float | str | None:
        """The value of a header field or an application property by its name; None if absent."""


HeaderReader = Callable[[MessageHeader], CommonHeader]
"""Shows a header that a store has kept to selectors."""
