"""Write the notes of commands beside their answer: a line each, on standard error."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import json_lines, of_the_system, one_line, print_lines
from sparkstore.errors import StoreError
from sparkstore.log_format import is_progress_shown, say

if TYPE_CHECKING:
    from sparkstore.operations.bulk import Answer
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
        records = unreplayed(root)
    except (StoreError, OSError) as failure:
        reason = of_the_system(failure) if isinstance(failure, OSError) else str(failure)
        note(f"whether the tables have all that was acknowledged is not known: {reason}")
        return {"records": None, "reason": one_line(reason)}
    if records is None:
        return None
    note(str(records))
    return {
        "records": records.records,
        "first_position": records.first_position,
        "last_position": records.last_position,
        "reason": str(records),
    }


def tell_unreplayed(arguments: Namespace, root: Root) -> None:
    """Note that the answer is not complete.

    A machine gets this as a last object, whose name no row has.
    """
    unreplayed = note_unreplayed(root)
    if unreplayed and arguments.json:
        print_lines(json_lines([{"unreplayed": unreplayed}]))


def shower(arguments: Namespace, action: str) -> Callable[[Answer], None]:
    """Make what shows the progress of a long command on standard error, if that is wanted."""
    is_shown = is_progress_shown(arguments.progress)

    def show(total: Answer) -> None:
        if is_shown:
            done = f"{total.done:,} done, {total.left:,} left alone, {total.gone:,} gone"
            say(action, done, logging.INFO)

    return show
