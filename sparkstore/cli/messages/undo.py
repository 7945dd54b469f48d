"""The commands `undo` and `operations`: take back what a bulk command did, and list them."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import opened_root, print_lines, recovered, row_limit
from sparkstore.cli.control import opened_control
from sparkstore.cli.messages.bulk_commands import shower
from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import Row, fields, json_lines, table, time_of
from sparkstore.cli.parsing import ROOT, add_check, at_least_0, check_code, command
from sparkstore.exit_codes import ExitCode
from sparkstore.operations.bulk import new_operation

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.undo_run import Undo
    from sparkstore.recovery.operation_log import LoggedOperation

_SHOWN_IDS = 100
"""Ids that are listed for each reason why messages cannot go back."""
_OPERATIONS = 100
_COLUMNS = ("operation", "at", "action", "queue", "to", "messages", "undoes", "undone_by")


def add(subparsers: Subparsers) -> None:
    """Add the commands `undo` and `operations`."""
    parser = command(
        subparsers,
        undo,
        "take back what a purge, move, requeue, redrive, resubmit or deletion did",
        "ID is what that command printed; `sparkstore operations` lists them. Messages go back to\n"
        "their queue, in their old order, with their delivery counts; what came since waits\n"
        "behind them. What left the store comes back as a copy with another id; a deleted queue\n"
        "is made again with its bindings. What cannot go back is told with the reason: consumed\n"
        "or moved on since, held, expired, no room, content gone from history (history_days).\n"
        "An undo has an ID of its own, and can be undone; twice the same is refused. After an\n"
        "interruption run it again.\n\n"
        "examples:\n  sparkstore undo ROOT 7f3a91c2 --dry-run\n  sparkstore undo ROOT 7f3a91c2",
        positional=(ROOT, ("operation", "what is to be undone")),
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be, change nothing")
    add_check(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )
    parser.set_defaults(progress=None)
    parser = command(
        subparsers,
        operations,
        "list bulk commands that history has, and what undid them",
        "Purges, moves, requeues, redrives, resubmissions, undos, and deletions of queues by\n"
        "anybody, the newest last. One with undone_by is undone; each other can be, as far as\n"
        "its messages are where it put them (undo --dry-run says so).\n\n"
        "example:\n  sparkstore operations ROOT",
    )
    parser.add_argument(
        "--limit", type=at_least_0, metavar="N",
        help="the newest N, 0: all (default 100, with --json all)",
    )  # fmt: skip


def operations(arguments: Namespace) -> int:
    """List the bulk commands that history has."""
    from sparkstore.recovery import operation_log

    with opened_root(arguments.root, whole=True) as root:
        found = operation_log.operations(root)
        limit = row_limit(arguments, _OPERATIONS) or len(found)
        rows = [_row(each) for each in found[len(found) - min(limit, len(found)) :]]
        print_lines(json_lines(rows) if arguments.json else table(rows, _COLUMNS))
        if len(rows) < len(found):
            note(f"the newest {len(rows)} of {len(found)} are shown: --limit 0 shows all")
        note_unreplayed(root)
    return 0


def _row(each: LoggedOperation) -> Row:
    told = {name: getattr(each, name) for name in _COLUMNS} | {"at": time_of(each.at)}
    return told | {"can_be_undone": each.undone_by is None}


def undo(arguments: Namespace) -> int:
    """Take back what a bulk command did."""
    if arguments.dry_run or arguments.check:
        _flush(arguments)
        with opened_root(arguments.root, whole=True) as root:
            from sparkstore.control.undo_run import planned_undo

            found = planned_undo(root, recovered(root), arguments.operation, "dryrun00")
            _print(arguments, {"dry_run": True, **_told(found)}, found)
            note_unreplayed(root)
        return check_code(arguments, len(found.plan.steps) + bool(found.queue))
    return _undo(arguments)


def _flush(arguments: Namespace) -> None:
    """Have the running broker, if there is one, put all of the operation into the tables."""
    from sparkstore.control.client import connect_to

    served = connect_to(arguments.root)
    if served is not None:
        try:
            served.flush()
        finally:
            served.close()


def _undo(arguments: Namespace) -> int:
    from sparkstore.control.undo_run import planned_undo, run_undo

    began, name = time.monotonic(), new_operation()
    with opened_control(arguments.root, arguments.config) as control:
        control.flush()
        with opened_root(arguments.root, whole=True) as root:
            found = planned_undo(root, recovered(root), arguments.operation, name)
            show = shower(arguments, {"action": "undo"})
            answer = run_undo(control, root, found, name, show)
    told = _told(found) | answer.told()
    seconds = round(time.monotonic() - began, 3)
    _print(arguments, {"operation": answer.named(name), **told, "seconds": seconds}, found)
    lost = sum(map(len, found.plan.lost.values()))
    return undo_code(answer.done or bool(found.queue), lost + answer.left + answer.gone)


def undo_code(did: int, failed: int) -> int:
    """Return the exit code of an undo: one that put nothing back of what it should is an error.

    Args:
        did: How much it changed.
        failed: Messages that it could not put back.
    """
    if did or not failed:
        return ExitCode.DONE
    note(f"nothing could be taken back: none of {failed} messages")
    return ExitCode.ERROR


def _told(found: Undo) -> dict[str, Any]:
    plan = found.plan
    told: dict[str, Any] = {"action": "undo", "undoes": found.operation}
    if found.queue:
        told["queue"] = found.queue
    if found.unbound:
        told["not_bound_to"] = found.unbound
    named = {"restored": plan.restored, "removed": plan.removed, "shifted": plan.shifted}
    return told | {name: counts for name, counts in named.items() if counts or name == "restored"}


def _print(arguments: Namespace, row: dict[str, Any], found: Undo) -> None:
    lost: list[dict[str, Any]] = [
        {"reason": reason, "messages": len(ids), "ids": ids[:_SHOWN_IDS]}
        for reason, ids in found.plan.lost.items()
    ]
    if arguments.json:
        print_lines(json_lines([row | {"lost": lost}]))
        return
    print_lines(fields(row))
    for each in lost:
        ids = ", ".join(map(str, each["ids"]))
        print_lines(fields({"cannot": f"{each['messages']} {each['reason']} ({ids})"}))
