"""Write the notes of commands beside their answer: a line each, on standard error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import of_the_system, one_line
from sparkstore.errors import StoreError
from sparkstore.log_format import say

if TYPE_CHECKING:
    from sparkstore.tables.root import Root


def note(line: str) -> None:
    """Write a note about the answer to standard error."""
    say("sparkstore", one_line(line))


def note_unreplayed(root: Root) -> Mapping[str, Any] | None:
    """Say so if the tables that were shown lack what the store acknowledged.

    Decision: it changes no exit code. What was asked was answered, nothing is broken, and the next
    start mends it; a monitor that asks a stopped store is not to fail for it.

    Returns:
        The same for a machine; None: nothing was said.
    """
    from sparkstore.log.unreplayed_records import unreplayed  # it loads deltalake

    try:
        found = unreplayed(root)
    except (StoreError, OSError) as failure:
        reason = of_the_system(failure) if isinstance(failure, OSError) else str(failure)
        note(f"whether the tables have all that was acknowledged is not known: {reason}")
        return {"records": None, "reason": one_line(reason)}
    if found is None:
        return None
    note(str(found))
    return {
        "records": found.records,
        "first_position": found.first_position,
        "last_position": found.last_position,
        "reason": str(found),
    }
