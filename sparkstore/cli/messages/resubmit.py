"""The command `resubmit`: a message leaves, and a repaired one comes in its place."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import opened_root, print_lines, recovered
from sparkstore.cli.control import opened_control
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import body_as_json, body_text, fields, json_lines
from sparkstore.cli.parsing import ROOT, command
from sparkstore.errors import InvalidRequest

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.content.edits import MessageEdit
    from sparkstore.operations.bulk import MessageDraft
    from sparkstore.tables.root import Root


def add(subparsers: Subparsers) -> None:
    """Add the command `resubmit`."""
    parser = command(
        subparsers,
        resubmit,
        "put a repaired message in the place of another",
        "The message leaves its queue and the repaired one comes, in one transaction. A dead\n"
        "letter goes back to where it came from, any other message to the end of its queue.\n"
        "What is not edited stays as the sender wrote it; a property keeps its type. The new\n"
        "message has another id and no expiry, and message_history links both: the outcome\n"
        "resubmitted names the new one, x-opt-resubmitted-from the old one.\n\n"
        "examples:\n"
        "  sparkstore resubmit ROOT 17 --body '{\"price\": 3}' --property land=eu\n"
        "  sparkstore resubmit ROOT 17 --body-file mended.json --unset attempt --dry-run\n"
        "  sparkstore resubmit ROOT 17 --property land=eu --to orders",
        positional=(ROOT,),
    )
    add_edit(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )


def add_edit(parser: ArgumentParser) -> None:
    """Add the message and its changes to a command, local or remote."""
    parser.add_argument("message_id", metavar="ID", type=int, help="the message, as browse says")
    body = parser.add_mutually_exclusive_group()
    body.add_argument("--body", metavar="TEXT", help="the new body")
    body.add_argument("--body-file", metavar="FILE", help="a file of the new body; - for stdin")
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="set an application property; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--unset", action="append", default=[], metavar="NAME",
        help="take an application property away; may be given again",
    )  # fmt: skip
    parser.add_argument("--queue", metavar="QUEUE", help="where it is, if it is on several")
    parser.add_argument("--to", metavar="QUEUE", help="where the repaired one goes")
    parser.add_argument("--dry-run", action="store_true", help="show it, change nothing")


def resubmit(arguments: Namespace) -> int:
    """Put a repaired message in the place of another."""
    edit = edit_of(arguments)
    with opened_root(arguments.root, whole=True) as root:
        return _resubmit(arguments, root, edit)


def edit_of(arguments: Namespace) -> MessageEdit:
    """Read the changes that `add_edit` lets somebody say. Raises InvalidRequest."""
    from sparkstore.content.edits import MessageEdit
    from sparkstore.operations.choice import choice_of

    pairs = dict(choice_of((), None, arguments.properties, None).properties)
    if twice := pairs.keys() & set(arguments.unset):
        raise InvalidRequest(f"--property and --unset of {min(twice)!r}: say one of them")
    return MessageEdit(_new_body(arguments), pairs, frozenset(arguments.unset))


def _new_body(arguments: Namespace) -> bytes | None:
    if arguments.body is not None:
        return str(arguments.body).encode(errors="surrogateescape")
    if arguments.body_file == "-":
        return sys.stdin.buffer.read()
    return None if arguments.body_file is None else Path(arguments.body_file).read_bytes()


def _resubmit(arguments: Namespace, root: Root, edit: MessageEdit) -> int:
    from sparkstore.content.edits import edited
    from sparkstore.content.reader import ContentReader
    from sparkstore.core.queue_names import find
    from sparkstore.operations.bulk import MessageDraft
    from sparkstore.operations.placement import (
        check_resubmitted,
        place_of,
        resubmission,
        target_of,
    )

    message_id, queues = arguments.message_id, recovered(root).queues
    there = {name: each.entries.get(message_id) for name, each in queues.items()}
    named = None if arguments.queue is None else find(arguments.queue, queues)
    entries = {name: entry for name, entry in there.items() if entry is not None}
    queue, entry = place_of(message_id, entries, named)
    target = target_of(entry, queue, arguments.to, queues)
    draft = MessageDraft(*edited(*ContentReader(root).read(message_id), edit))
    row: dict[str, Any] = {"action": "resubmit", "message_id": message_id}
    row |= {"from": queue, "to": target}
    if arguments.dry_run:
        _print(arguments, row | {"dry_run": True, **_shown(draft, as_json=arguments.json)})
    else:
        request = resubmission(message_id, queue, target, draft)
        with opened_control(arguments.root, arguments.config) as control:
            answer = control.place(request)
        check_resubmitted(message_id, queue, answer)
        _print(arguments, row | {"operation": request.operation, "done": answer.done})
    note_unreplayed(root)
    return 0


def _shown(draft: MessageDraft, *, as_json: bool) -> dict[str, Any]:
    properties = {"properties": dict(draft.header.properties)}
    return properties | (body_as_json(draft.body) if as_json else {"body": body_text(draft.body)})


def _print(arguments: Namespace, row: dict[str, Any]) -> None:
    print_lines(json_lines([row]) if arguments.json else fields(row))
