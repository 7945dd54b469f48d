"""Durability tiers: what of an object survives a restart."""

from __future__ import annotations

from enum import IntEnum


class TerminusDurability(IntEnum):
    """AMQP 1.0 terminus durability; the number is the protocol's own.

    NONE: nothing survives. CONFIGURATION: queues, exchanges, bindings, termini.
    UNSETTLED_STATE: also messages, what is enqueued, acquired and settled.
    """

    NONE = 0
    CONFIGURATION = 1
    UNSETTLED_STATE = 2

    @property
    def word(self) -> str:
        """Return the durability in the spelling of settings and of the broker's first line."""
        return self.name.lower().replace("_", "-")


WORDS = tuple(tier.word for tier in TerminusDurability)
"""What each number in a definition is called, on every road."""
