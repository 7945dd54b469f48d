"""What the service tells an audit log of its members; who writes it down is its caller's affair."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class MemberEvent(StrEnum):
    """What happened."""

    CONNECTED = "member-connected"
    REFUSED = "member-refused"
    GONE = "member-gone"


Audit = Callable[..., None]
"""audit(event, **details), from any thread: details are `peer`, `member`, `reason`, `requests`."""


def not_audited(_event: MemberEvent, **_details: object) -> None:
    """Write nothing down."""
