"""The command `resubmit`: a message leaves, and a repaired one comes in its place."""

from __future__ import annotations

import sys
from argparse import Namespace
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import body_as_json, body_text, show_row
from sparkstore.cli.parsing import add_config, command
from sparkstore.cli.target import opened_broker, opened_control, opened_root, recovered
from sparkstore.control.broker_control import path_of
from sparkstore.errors import InvalidRequest

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.content.edits import MessageEdit
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
        by_url=True,
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
    add_config(parser)


def resubmit(arguments: Namespace) -> int:
    """Put a repaired message in the place of another."""
    edit = _edit_of(arguments)
    if arguments.url is not None:
        return _resubmit_by_url(arguments, edit)
    with opened_root(arguments.root, whole=True) as root:
        return _resubmit(arguments, root, edit)


def _edit_of(arguments: Namespace) -> MessageEdit:
    """Read the changes that the command names. Raises InvalidRequest."""
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
    maybe = {name: queue.entries.get(message_id) for name, queue in queues.items()}
    named = None if arguments.queue is None else find(arguments.queue, queues)
    entries = {name: entry for name, entry in maybe.items() if entry is not None}
    queue, entry = place_of(message_id, entries, named)
    target = target_of(entry, queue, arguments.to, queues)
    draft = MessageDraft(*edited(*ContentReader(root).read(message_id), edit))
    row: dict[str, Any] = {"action": "resubmit", "message_id": message_id}
    row |= {"from": queue, "to": target}
    if arguments.dry_run:
        properties = dict(draft.header.properties)
        show_row(arguments, row | _repaired(arguments, properties, draft.body))
    else:
        request = resubmission(message_id, queue, target, draft)
        with opened_control(arguments) as control:
            answer = control.place(request)
        check_resubmitted(message_id, queue, answer)
        show_row(arguments, row | {"operation": request.operation, "done": answer.done})
    note_unreplayed(root)
    return 0


def _resubmit_by_url(arguments: Namespace, edit: MessageEdit) -> int:
    body: dict[str, Any] = {"properties": dict(edit.properties), "unset": sorted(edit.removed)}
    if edit.body is not None:
        body["body_base64"] = b64encode(edit.body).decode("ascii")
    body |= {"queue": arguments.queue, "to": arguments.to, "dry_run": arguments.dry_run}
    with opened_broker(arguments) as broker:
        path = path_of("messages", str(arguments.message_id), "resubmit")
        answer = broker.ask("POST", path, body)
    row = {"action": "resubmit", "message_id": answer["message"]}
    row |= {"from": answer["queue"], "to": answer["to"]}
    if arguments.dry_run:
        text, encoded = answer["body"], answer["body_base64"]
        content = b64decode(encoded) if text is None else text.encode()
        show_row(arguments, row | _repaired(arguments, answer["properties"], content))
    else:
        show_row(arguments, row | {"operation": answer["operation"], "done": answer["done"]})
    return 0


def _repaired(arguments: Namespace, properties: dict[str, str], body: bytes) -> dict[str, Any]:
    """Describe the message that would come."""
    content = body_as_json(body) if arguments.json else {"body": body_text(body)}
    return {"dry_run": True, "properties": properties, **content}
