"""The commands `undo`, `operations` and `history`: what was done, and taking it back."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note, note_unreplayed, shower
from sparkstore.cli.output import (
    Row,
    fields,
    json_lines,
    print_lines,
    show_rows,
    time_of,
    time_said,
)
from sparkstore.cli.parsing import (
    ROOT,
    add_config,
    add_dry_run,
    add_limit,
    check_code,
    command,
    is_dry,
    row_limit,
)
from sparkstore.cli.target import (
    flush_broker,
    opened_broker,
    opened_control,
    opened_root,
    recovered,
)
from sparkstore.control.broker_control import path_of
from sparkstore.exit_codes import ExitCode
from sparkstore.operations.bulk import Answer, new_operation

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.undo_run import Undo

_SHOWN_IDS = 100
"""Ids that are listed for each reason why messages cannot go back."""
_OPERATIONS, _MOST_BY_URL = 100, 1_000
_COLUMNS = ("operation", "at", "action", "queue", "to", "messages", "undoes", "undone_by")
_EVENTS = ("position", "at", "kind", "queue", "holder", "delivery_count", "detail")


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
        by_url=True,
    )
    add_dry_run(parser, "say what would be, change nothing")
    add_config(parser)
    parser.set_defaults(progress=None)
    _add_looks(subparsers)


def _add_looks(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        operations,
        "list bulk commands that history has, and what undid them",
        "Purges, moves, requeues, redrives, resubmissions, undos, and deletions of queues by\n"
        "anybody, the newest last. One with undone_by is undone; each other can be, as far as\n"
        "its messages are where it put them (undo --dry-run says so).\n\n"
        "example:\n  sparkstore operations ROOT",
        by_url=True,
    )
    add_limit(parser, "the newest N, 0: all (default 100, with --json all; by a URL at most 1000)")
    command(
        subparsers,
        history,
        "show every event of a message, consumed or not",
        "The id is what `browse` shows. It goes as far back as history does (history_days).\n\n"
        "example:\n  sparkstore history ROOT 17",
        positional=(ROOT, ("message", "the id of the message")),
        by_url=True,
    )


def operations(arguments: Namespace) -> int:
    """List the bulk commands that history has."""
    limit = row_limit(arguments, _OPERATIONS)
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            answer = broker.ask("GET", "operations", limit=limit or _MOST_BY_URL)
        listed = [{**row, "at": time_said(row["at"])} for row in answer["items"]]
        _show_operations(arguments, listed, answer["total"])
        return 0
    from sparkstore.recovery import operation_log

    with opened_root(arguments.root, whole=True) as root:
        logged = operation_log.operations(root)
        newest = logged[len(logged) - min(limit or len(logged), len(logged)) :]
        rows = [{name: getattr(it, name) for name in _COLUMNS} for it in newest]
        listed = [row | {"at": time_of(row["at"])} for row in rows]
        _show_operations(arguments, listed, len(logged))
        note_unreplayed(root)
    return 0


def _show_operations(arguments: Namespace, listed: list[dict[str, Any]], total: int) -> None:
    rows = [row | {"can_be_undone": row["undone_by"] is None} for row in listed]
    show_rows(arguments, rows, _COLUMNS)
    if len(rows) < total:
        note(f"the newest {len(rows)} of {total} are shown: --limit 0 shows all")


def history(arguments: Namespace) -> int:
    """Show every event of a message."""
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            path = path_of("messages", arguments.message, "history")
            events = broker.ask("GET", path, limit=_MOST_BY_URL)["items"]
        show_rows(arguments, [{**event, "at": time_said(event["at"])} for event in events], _EVENTS)
        return 0
    from sparkstore.embedded.message_history import events_of

    with opened_root(arguments.root, whole=True) as root:
        events = events_of(root, arguments.message)
        show_rows(arguments, [{**event, "at": time_of(event["at"])} for event in events], _EVENTS)
        note_unreplayed(root)
    return 0


def undo(arguments: Namespace) -> int:
    """Take back what a bulk command did."""
    began = time.monotonic()
    if arguments.url is not None:
        outcome = _undone_by_url(arguments)
    else:
        outcome = (_planned if is_dry(arguments) else _undone)(arguments)
    named = ("queue", "not_bound_to", "restored", "removed", "shifted")
    row = {name: outcome[name] for name in named if outcome[name] or name == "restored"}
    row = {"action": "undo", "undoes": outcome["undoes"], **row}
    changes = sum(sum(outcome[name].values()) for name in named[2:]) + bool(outcome["queue"])
    if is_dry(arguments):
        _print(arguments, {"dry_run": True, **row}, outcome["lost"])
        return check_code(arguments, changes)
    fates = {name: outcome[name] for name in ("done", "left", "gone")}
    seconds = round(time.monotonic() - began, 3)
    row = {"operation": outcome["operation"], **row, **fates, "seconds": seconds}
    _print(arguments, row, outcome["lost"])
    failed = sum(map(len, outcome["lost"].values())) + outcome["left"] + outcome["gone"]
    return _undo_code(outcome["done"] or bool(outcome["queue"]), failed)


def _undone_by_url(arguments: Namespace) -> dict[str, Any]:
    with opened_broker(arguments) as broker:
        path = path_of("operations", arguments.operation, "undo")
        outcome: dict[str, Any] = broker.ask("POST", path, {"dry_run": is_dry(arguments)})
    return outcome


def _planned(arguments: Namespace) -> dict[str, Any]:
    from sparkstore.control.undo_run import planned_undo

    flush_broker(arguments.root)
    with opened_root(arguments.root, whole=True) as root:
        planned = planned_undo(root, recovered(root), arguments.operation, "dryrun00")
        note_unreplayed(root)
    return _outcome(planned, Answer(), None)


def _undone(arguments: Namespace) -> dict[str, Any]:
    from sparkstore.control.undo_run import planned_undo, run_undo

    name = new_operation()
    with opened_control(arguments) as control:
        control.flush()
        with opened_root(arguments.root, whole=True) as root:
            planned = planned_undo(root, recovered(root), arguments.operation, name)
            answer = run_undo(control, root, planned, name, shower(arguments, "undo"))
    return _outcome(planned, answer, name)


def _outcome(planned: Undo, answer: Answer, name: str | None) -> dict[str, Any]:
    """Return what an undo of a root came to, or would, as a broker answers it."""
    plan = planned.plan
    counts = {"restored": plan.restored, "removed": plan.removed, "shifted": plan.shifted}
    outcome: dict[str, Any] = {"undoes": planned.operation, "operation": answer.named(name)}
    outcome |= counts | answer._asdict()
    return outcome | {"queue": planned.queue, "not_bound_to": planned.unbound, "lost": plan.lost}


def _undo_code(did: int, failed: int) -> int:
    """Return the exit code of an undo: one that put nothing back of what it should is an error.

    Args:
        did: How much it changed.
        failed: Messages that it could not put back.
    """
    if did or not failed:
        return ExitCode.DONE
    note(f"nothing could be taken back: none of {failed} messages")
    return ExitCode.ERROR


def _print(arguments: Namespace, row: Row, lost: Mapping[str, list[int]]) -> None:
    reasons: list[dict[str, Any]] = [
        {"reason": reason, "messages": len(ids), "ids": ids[:_SHOWN_IDS]}
        for reason, ids in lost.items()
    ]
    if arguments.json:
        print_lines(json_lines([{**row, "lost": reasons}]))
        return
    print_lines(fields(row))
    for reason in reasons:
        ids = ", ".join(map(str, reason["ids"]))
        print_lines(fields({"cannot": f"{reason['messages']} {reason['reason']} ({ids})"}))
