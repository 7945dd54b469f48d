"""Durability tiers, as a broker sees them: those of the store."""

from sparkstore.core.durability import TerminusDurability

__all__ = ["TerminusDurability"]
