"""The command `browse`: messages of a queue in order, with why they are dead, without Java."""

from __future__ import annotations

from argparse import Namespace
from base64 import b64decode
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note, tell_unreplayed
from sparkstore.cli.output import (
    Row,
    body_as_json,
    body_text,
    json_lines,
    print_lines,
    printable,
    table,
    time_of,
    time_said,
)
from sparkstore.cli.parsing import add_limit, command, row_limit
from sparkstore.cli.target import opened_broker, opened_root, queue_named, recovered
from sparkstore.control.broker_control import path_of

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
        "says if a stopped store's write-ahead log has more; a broker at a URL shows its own.\n"
        "A dead letter shows where it died and why; --json has all annotations. In a bucket\n"
        "subject and properties are read with --body only. Control characters are escaped; a\n"
        "body that is not UTF-8 is shown in hexadecimal.\n\n"
        "examples:\n  sparkstore browse --limit 5 --body ROOT orders\n"
        "  sparkstore browse --json ROOT dead | jq '.annotations'",
        by_url=True,
    )
    parser.add_argument("queue", help="name of the queue")
    add_limit(parser, "messages, 0: all (default 20, with --json all)")
    parser.add_argument("--body", action="store_true", help="headers and content, too")


def browse(arguments: Namespace) -> int:
    """Show messages of one queue, in order."""
    if arguments.url is not None:
        return _browse_by_url(arguments)
    with opened_root(arguments.root, whole=arguments.body) as root:
        return _browse(arguments, root)


def _browse(arguments: Namespace, root: Root) -> int:
    from sparkstore.content.reader import ContentReader

    state = recovered(root)
    queue = queue_named(arguments, state)
    entries = state.queues[queue].entries
    limit = row_limit(arguments, _BROWSED) or len(entries)
    listed = islice(entries.items(), limit)
    reader = ContentReader(root)
    if arguments.body:
        for message_id, entry in listed:
            header, body = reader.read(message_id)
            row = _row(message_id, entry, header)
            print_lines(_lines(arguments, row | {"header": _values(header._asdict())}, body))
    else:
        has_headers = root.remote is None and not _is_in_bucket(arguments)
        _show(arguments, _rows(listed, reader if has_headers else None))
    _note_rest(limit, len(entries))
    tell_unreplayed(arguments, root)
    return 0


def _browse_by_url(arguments: Namespace) -> int:
    path, limit = path_of("queues", arguments.queue, "messages"), row_limit(arguments, _BROWSED)
    with opened_broker(arguments) as broker:
        total = broker.ask("GET", path, limit=1)["total"]
        listed = islice(broker.pages(path), limit or None)
        if arguments.body:
            for message in listed:
                whole = broker.ask("GET", f"{path}/{message['id']}")
                row = _served_row(whole) | {"header": _served_header(whole)}
                print_lines(_lines(arguments, row, _served_body(whole)))
        else:
            _show(arguments, map(_served_row, listed))
    _note_rest(limit or total, total)
    return 0


def _note_rest(shown: int, total: int) -> None:
    if shown < total:
        note(f"the first {shown} of {total} messages are shown: --limit 0 shows all")


def _show(arguments: Namespace, rows: Iterable[Row]) -> None:
    print_lines(json_lines(rows) if arguments.json else table([*map(_for_people, rows)], _COLUMNS))


_HEADER = ("durable", "subject", "content_type", "user_id", "amqp_message_id", "correlation_id")


def _served_row(message: dict[str, Any]) -> dict[str, Any]:
    """Return a broker's answer about a message as a row; its place in the log is not in it."""
    from sparkstore.core.annotations import DEATH

    row = {name: message.get(name) for name in (*_COLUMNS[:-1], "traceparent")}
    expires, death = message["expires_at"], message["death"]
    row |= {"message_id": message["id"], "enqueued_at": time_said(message["enqueued_at"])}
    row["expires_at"] = None if expires is None else time_said(expires)
    why = {DEATH + name: text for name, text in death.items()}
    return {**row, "annotations": message.get("annotations", why)}


def _served_header(message: dict[str, Any]) -> dict[str, Any]:
    return _values({name: message[name] for name in _HEADER})


def _served_body(message: dict[str, Any]) -> bytes | None:
    """Return the body that a broker's answer has; None: it is too large for one."""
    if message["body_form"] == "omitted":
        return None
    if message["body_form"] == "base64":
        return b64decode(message["body"])
    return str(message["body"]).encode()


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
    names = (DEATH + name for name in ("condition", "description"))
    texts = [annotations[name] for name in names if name in annotations]
    return f"{words}: {', '.join(texts)}" if texts else words


def _values(header: dict[str, Any]) -> dict[str, Any]:
    """The fields of a header that have a value, but for its encoding and what has a column."""
    hidden = {"header", "properties"}
    return {k: v for k, v in header.items() if k not in hidden and v is not None}


def _lines(arguments: Namespace, row: dict[str, Any], body: bytes | None) -> Iterator[str]:
    """Print one message whole, since it was asked for; a body of None is left out."""
    if arguments.json:
        yield from json_lines([row if body is None else row | body_as_json(body)])
        return
    yield f"message {row['message_id']}"
    names = [name for name in _COLUMNS if name not in {"message_id", "properties"}]
    values = {name: row.get(name) for name in names} | row["header"]
    for name, value in (values | row["annotations"] | row["properties"]).items():
        if value is not None:
            yield f"  {printable(name)}: {printable(str(value))}"
    omitted = "too large to be shown: sparkstore export has it"
    yield f"  body: {omitted if body is None else body_text(body)}"
