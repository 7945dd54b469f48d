"""The command `diff`: what came to the queues, left them and moved between two moments."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import json_lines, print_lines, table
from sparkstore.cli.parsing import add_limit, command, row_limit
from sparkstore.cli.queries.sql import check_time
from sparkstore.cli.target import opened_root
from sparkstore.errors import InvalidRequest

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_ROWS = 1_000
"""Changes that people see unless they ask for more."""
_SWAPPED = "--from {} is after --to {}: swap them"
_ORDER = ("came", "left", "moved", "passed")


def add(subparsers: Subparsers) -> None:
    """Add the command `diff` to the command line."""
    parser = command(
        subparsers,
        diff,
        "show what came to the queues, left them and moved between two times",
        "A row is a message: it came to a queue, left one (with outcome and by whom), moved to\n"
        "another (to_queue), or passed: it came and left in between. What is the same at both\n"
        "times is no row. Needs no Java; changes nothing.\n"
        "Counts are on standard error.\n\n"
        "examples:\n  sparkstore diff ROOT --from '2026-11-22 10:00' --to '2026-11-22 11:00'\n"
        "  sparkstore diff ROOT --from 2026-11-22T10:00+01:00 --json | jq .message_id\n"
        "  sparkstore diff ROOT --from position=812",
    )
    parser.add_argument(
        "--from", required=True, metavar="TIME", dest="start",
        help="the earlier time (UTC if no zone is named), or position=N",
    )  # fmt: skip
    parser.add_argument("--to", metavar="TIME", dest="end", help="the later one (default: now)")
    add_limit(parser, "rows, 0: all (default 1000, with --json all)")


def diff(arguments: Namespace) -> int:
    """Print the changes, and their counts."""
    from sparkstore.embedded.message_changes import COLUMNS, changes
    from sparkstore.log.tuning import without
    from sparkstore.recovery.point_in_time import latest_position

    limit = row_limit(arguments, _ROWS)
    with opened_root(arguments.root, whole=True) as root:
        _check_order(arguments.start, arguments.end)
        start = check_time(root, arguments.start).position
        end = check_time(root, arguments.end).position if arguments.end else latest_position(root)
        if start > end:
            raise InvalidRequest(_SWAPPED.format(arguments.start, arguments.end))
        with without("pandas"):
            rows = changes(root, start, end).to_pylist()
        shown = rows[: limit or None]
        print_lines(json_lines(shown) if arguments.json else table(shown, COLUMNS))
        counted = Counter(row["change"] for row in rows)
        note(", ".join(f"{counted[change]} {change}" for change in _ORDER))
        if len(shown) < len(rows):
            note(f"the first {limit} rows are shown, there are more: --limit 0 shows all")
        note_unreplayed(root)
    return 0


def _check_order(start: str, end: str | None) -> None:
    """Refuse times in the wrong order, even if nothing happened between them."""
    from sparkstore.recovery.point_in_time import microseconds

    if end is None:
        return
    times = microseconds(start), microseconds(end)
    if times[0] is not None and times[1] is not None and times[0] > times[1]:
        raise InvalidRequest(_SWAPPED.format(start, end))
