"""The command `browse`: messages of a queue in order, with why they are dead, without Java."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import (
    opened_root,
    print_lines,
    queue_named,
    recovered,
    row_limit,
    tell_unreplayed,
)
from sparkstore.cli.notes import note
from sparkstore.cli.output import (
    Row,
    body_as_json,
    body_text,
    json_lines,
    printable,
    table,
    time_of,
)
from sparkstore.cli.parsing import at_least_0, command

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.content.reader import ContentReader
    from sparkstore.core.entries import Entry
    from sparkstore.core.records import MessageHeader
    from sparkstore.tables.root import Root

_COLUMNS = (
    "position",
    "message_id",
    "enqueued_at",
    "bytes",
    "acquired_by",
    "delivery_count",
    "priority",
    "expires_at",
    "subject",
    "properties",
    "died",
)
_BROWSED = 20
"""Messages that people see unless they ask for more."""
_HEADERS = 1_000
"""So many headers are read together."""


def add(subparsers: Subparsers) -> None:
    """Add the command `browse` to the command line."""
    parser = command(
        subparsers,
        browse,
        "show messages of a queue, in order, without taking them",
        "Needs no Java and changes nothing. Like `queues`, it shows the messages in Delta, and\n"
        "says if a stopped store's write-ahead log has more. A dead letter shows where\n"
        "it died and why; --json has all annotations. In a bucket subject and properties\n"
        "are read with --body only. Control characters are escaped; a body that is not UTF-8 is\n"
        "shown in hexadecimal.\n\n"
        "examples:\n  sparkstore browse --limit 5 --body ROOT orders\n"
        "  sparkstore browse --json ROOT dead | jq '.annotations'",
    )
    parser.add_argument("queue", help="name of the queue")
    parser.add_argument(
        "--limit", type=at_least_0, metavar="N",
        help="messages, 0: all (default 20, with --json all)",
    )  # fmt: skip
    parser.add_argument("--body", action="store_true", help="headers and content, too")


def browse(arguments: Namespace) -> int:
    """Show messages of one queue, in order."""
    with opened_root(arguments.root, whole=arguments.body) as root:
        return _browse(arguments, root)


def _browse(arguments: Namespace, root: Root) -> int:
    from sparkstore.content.reader import ContentReader

    state = recovered(root)
    queue = queue_named(arguments, state)
    entries = state.queues[queue].entries
    limit = row_limit(arguments, _BROWSED) or len(entries)
    shown = islice(entries.items(), limit)
    reader = ContentReader(root)
    if arguments.body:
        for message_id, entry in shown:
            header, body = reader.read(message_id)
            row = _row(message_id, entry, header) | {"header": _told(header)}
            print_lines(_lines(row, body, as_json=arguments.json))
    else:
        rows = _rows(
            shown, reader if root.remote is None and not _is_in_bucket(arguments) else None
        )
        print_lines(
            json_lines(rows) if arguments.json else table([*map(_for_people, rows)], _COLUMNS)
        )
    if limit < len(entries):
        note(f"the first {limit} of {len(entries)} messages are shown: --limit 0 shows all")
    tell_unreplayed(arguments, root)
    return 0


def _is_in_bucket(arguments: Namespace) -> bool:
    from sparkstore.storage.objects import is_object_uri

    return is_object_uri(arguments.root)


def _rows(shown: Iterator[tuple[int, Entry]], reader: ContentReader | None) -> Iterator[Row]:
    while part := [*islice(shown, _HEADERS)]:
        ids = [message_id for message_id, _entry in part]
        headers = {} if reader is None else reader.headers(ids)
        for message_id, entry in part:
            yield _row(message_id, entry, headers.get(message_id))


def _row(message_id: int, entry: Entry, header: MessageHeader | None) -> dict[str, Any]:
    from sparkstore.core.annotations import annotations_of

    annotations = annotations_of(entry.detail)
    return {
        "position": entry.position,
        "message_id": message_id,
        "enqueued_at": time_of(entry.at),
        "bytes": entry.message_bytes,
        "acquired_by": entry.acquired_by,
        "delivery_count": entry.delivery_count,
        "priority": entry.priority,
        "expires_at": time_of(entry.expires_at),
        "subject": None if header is None else header.subject,
        "properties": None if header is None else dict(header.properties),
        "traceparent": None if header is None else dict(header.properties).get("traceparent"),
        "annotations": {key: text for key, (_kind, text) in annotations.items()},
    }


def _for_people(row: Row) -> Row:
    """The row with its properties as pairs, and in words why the message is dead."""
    properties = row["properties"] or {}
    pairs = " ".join(f"{name}={value}" for name, value in properties.items())
    return {**row, "properties": pairs, "died": _died(row["annotations"])}


def _died(annotations: dict[str, str]) -> str | None:
    from sparkstore.core.annotations import DEATH

    queue = annotations.get(DEATH + "queue")
    if queue is None:
        return None
    words = f"{annotations.get(DEATH + 'reason', 'died')} on {queue}"
    said = [
        annotations[DEATH + name]
        for name in ("condition", "description")
        if DEATH + name in annotations
    ]
    return f"{words}: {', '.join(said)}" if said else words


def _told(header: MessageHeader) -> dict[str, Any]:
    """The fields of a header that have a value, but for its encoding and what has a column."""
    hidden = {"header", "properties"}
    return {k: v for k, v in header._asdict().items() if k not in hidden and v is not None}


def _lines(row: dict[str, Any], body: bytes, *, as_json: bool) -> Iterator[str]:
    """Print one message whole, since it was asked for."""
    if as_json:
        yield from json_lines([row | body_as_json(body)])
        return
    yield f"message {row['message_id']}"
    names: Sequence[str] = [name for name in _COLUMNS if name not in {"message_id", "properties"}]
    told = {name: row.get(name) for name in names} | row["header"]
    for name, value in (told | row["annotations"] | row["properties"]).items():
        if value is not None:
            yield f"  {printable(name)}: {printable(str(value))}"
    yield f"  body: {body_text(body)}"
