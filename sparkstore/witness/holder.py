"""Say who may serve and for how long, as the object of a witness has it, and as text. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from sparkstore.errors import CorruptData

CLOCKS_DIFFER = 1.05
"""Clocks may run so much faster than one another."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The content of the witness's object: the root that may serve, and its lease.

    Attributes:
        root_id: The root that may serve.
        generation: The number of that root that a promotion raises.
        writer: UUID drawn by the process that wrote this.
        lease_s: How long the process may tell completions after it began this renewal.
        renewal: Counts the renewals, so that no two of these are alike.
        where: Machine and folder, to tell people.
        is_closed: Nobody tells anything under it, nor under one before it.
        in_step: The root of the standby whose log has all that was told; empty: nobody's.
        is_paused: A person wants no standby to take over.
        position: The root had confirmed up to here, or could have; 0: nobody says.
        closed_why: Why it was handed over; empty: it was not, or its holder just stopped.
        switched_us: When this root took the place of another, UTC µs; 0: it never did.
        switched_why: Why it did, to tell people.
    """

    root_id: str
    generation: int
    writer: str
    lease_s: float
    renewal: int = 0
    where: str = ""
    is_closed: bool = False
    in_step: str = ""
    is_paused: bool = False
    position: int = 0
    closed_why: str = ""
    switched_us: int = 0
    switched_why: str = ""

    @property
    def over_after_s(self) -> float:
        """Return how long anybody else waits for the lease, by a clock of its own."""
        return self.lease_s * CLOCKS_DIFFER


_DEFAULTS = {part.name: part.default for part in fields(Holder)}


def packed(holder: Holder) -> bytes:
    """Encode the content of a witness's object.

    A field at its default is left out: an older process refuses the name of one that it lacks.
    """
    row = asdict(holder).items()
    return json.dumps({name: value for name, value in row if value != _DEFAULTS[name]}).encode()


def unpacked(location: str, content: bytes) -> Holder:
    """Decode the content of a witness's object; leaves out what only a newer version knows.

    Raises:
        CorruptData: It is none.
    """
    try:
        row = json.loads(content).items()
        return Holder(**{name: value for name, value in row if name in _DEFAULTS})
    except (ValueError, TypeError, AttributeError) as reason:
        message = f"{location}: the object cannot be read ({reason}): see what wrote there"
        raise CorruptData(message) from reason
