"""The command `resubmit`: a message leaves, and a repaired one comes in its place."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import opened_root, print_lines, recovered
from sparkstore.cli.control import opened_control
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import body_as_json, body_text, fields, json_lines
from sparkstore.cli.parsing import ROOT, command
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import new_operation

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.content.edits import MessageEdit
    from sparkstore.core.fold import Entry, State
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
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )


def resubmit(arguments: Namespace) -> int:
    """Put a repaired message in the place of another."""
    edit = _edit(arguments)
    with opened_root(arguments.root, whole=True) as root:
        return _resubmit(arguments, root, edit)


def _edit(arguments: Namespace) -> MessageEdit:
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
    from sparkstore.core.annotations import RESUBMITTED_FROM
    from sparkstore.operations.bulk import MessageDraft
    from sparkstore.operations.placement import Placement, PlacementRequest

    state = recovered(root)
    queue, entry = _place(arguments, state)
    target = _target(arguments, state, queue, entry)
    header, body = ContentReader(root).read(arguments.message_id)
    draft = MessageDraft(*edited(header, body, edit))
    row: dict[str, Any] = {"action": "resubmit", "message_id": arguments.message_id}
    row |= {"from": queue, "to": target}
    if arguments.dry_run:
        _print(arguments, row | {"dry_run": True, **_shown(draft, as_json=arguments.json)})
    else:
        operation = new_operation()
        annotations = {RESUBMITTED_FROM: ("ulong", str(arguments.message_id))}
        placement = Placement(arguments.message_id, queue, target, draft, annotations=annotations)
        with opened_control(arguments.root, arguments.config) as control:
            answer = control.place(PlacementRequest((placement,), operation))
        if not answer.done:
            why = "a consumer holds it" if answer.left else f"it left {queue!r} meanwhile"
            raise InvalidRequest(f"message {arguments.message_id}: {why}; nothing was done")
        _print(arguments, row | {"operation": operation, "done": answer.done})
    note_unreplayed(root)
    return 0


def _place(arguments: Namespace, state: State) -> tuple[str, Entry]:
    """Find the queue that a message is on.

    Raises:
        InvalidRequest: It is on none, or on several and none was named.
    """
    from sparkstore.core.queue_names import find

    message_id, named = arguments.message_id, arguments.queue
    found = {
        name: entry
        for name, queue in state.queues.items()
        if (entry := queue.entries.get(message_id)) is not None
    }
    if named is not None:
        name = find(named, state.queues)
        found = {name: found[name]} if name in found else {}
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise InvalidRequest(f"message {message_id} is on {names}: say which with --queue")
    for name, entry in found.items():
        return name, entry
    where = "any queue" if named is None else repr(named)
    message = f"message {message_id} is not on {where}: sparkstore browse shows ids, and"
    raise InvalidRequest(f"{message} sparkstore replay brings back what left")


def _target(arguments: Namespace, state: State, queue: str, entry: Entry) -> str:
    from sparkstore.core.annotations import origin_of
    from sparkstore.core.queue_names import find

    if arguments.to is not None:
        return find(arguments.to, state.queues)
    origin = origin_of(entry.detail)
    return queue if origin is None or origin not in state.queues else origin


def _shown(draft: MessageDraft, *, as_json: bool) -> dict[str, Any]:
    properties = {"properties": dict(draft.header.properties)}
    return properties | (body_as_json(draft.body) if as_json else {"body": body_text(draft.body)})


def _print(arguments: Namespace, row: dict[str, Any]) -> None:
    print_lines(json_lines([row]) if arguments.json else fields(row))
