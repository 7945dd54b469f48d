"""The command `export`: messages of a queue to a file, with header, properties and body.

Content is read by message id, in the order of the queue, and written as it comes. The store is not
touched.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.messages.bulk import check_at_rest, chosen_by, name_queues
from sparkstore.cli.messages.chosen_messages import add_choice, waiting
from sparkstore.cli.notes import note_unreplayed, shower
from sparkstore.cli.output import json_lines, message_as_json, print_lines
from sparkstore.cli.parsing import add_for_root, command
from sparkstore.cli.target import opened_broker, opened_root, recovered
from sparkstore.control.broker_control import path_of
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import Action, Answer, Request

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.content.reader import ContentReader
    from sparkstore.tables.root import Root

_ROW_GROUP_BYTES = 32 << 20
_ROW_GROUP_ROWS = 10_000

Content = tuple[int, MessageHeader, bytes]


def add(subparsers: Subparsers) -> None:
    """Add the command `export` to the command line."""
    parser = command(
        subparsers,
        export,
        "write messages of a queue to a file",
        "Header, properties and body, in the order of the queue; the store is not touched.\n"
        "JSON: one object a line; a body that is not UTF-8 is body_base64.\n\n"
        "examples:\n  sparkstore export ROOT orders --where \"subject = 'eggs'\" "
        "| jq .body\n"
        "  sparkstore export ROOT orders --format parquet --output orders.parquet",
        by_url=True,
    )
    add_choice(parser, by_conditions=True)
    add_for_root(
        parser, "--format", choices=("json", "parquet"), default="json", help="(default json)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON goes to standard output without it"
    )


def export(arguments: Namespace) -> int:
    """Write messages of a queue to a file."""
    if arguments.format == "parquet" and arguments.output is None:
        raise InvalidRequest("--format parquet needs --output FILE")
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            path = path_of("queues", arguments.queue, "export")
            _write_lines(arguments.output, broker.lines("POST", path, chosen_by(arguments)))
        return 0
    with opened_root(arguments.root, whole=True) as root:
        return _export(root, arguments)


def _export(root: Root, arguments: Namespace) -> int:
    from sparkstore.content.reader import ContentReader

    state = recovered(root)
    name_queues(arguments, state.queues)
    check_at_rest(state, Request(Action.PURGE, arguments.queue, ()))
    if arguments.where is None and not (
        arguments.ids or arguments.older_than or arguments.properties or arguments.subject
    ):
        arguments.older_than = "0s"  # all of them, without Java
    with waiting(arguments)(root, state) as chosen:
        messages = contents(ContentReader(root), chosen.ids())
        counted = _counted(messages, shower(arguments, "export"))
        if arguments.format == "parquet":
            write_parquet(counted, arguments.output)
        else:
            _write_lines(arguments.output, json_lines(starmap(message_as_json, counted)))
    note_unreplayed(root)
    return 0


def _write_lines(output: Path | None, lines: Iterable[str]) -> None:
    if output is None:
        print_lines(lines)
        return
    with _scratch_of(output) as scratch, scratch.open("w") as file:
        file.writelines(line + "\n" for line in lines)


@contextmanager
def _scratch_of(path: Path) -> Iterator[Path]:
    """Let a file be written beside its place, and be there when it is whole."""
    scratch = path.with_name(path.name + ".new")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _counted(messages: Iterable[Content], show: Callable[[Answer], None]) -> Iterator[Content]:
    """Iterate over messages, and show their count about once a second."""
    shown_at = time.monotonic()
    for number, message in enumerate(messages):
        if time.monotonic() - shown_at >= 1:
            shown_at = time.monotonic()
            show(Answer(done=number))
        yield message


def contents(reader: ContentReader, message_ids: Iterable[int]) -> Iterator[Content]:
    """Message id, header and body of each.

    Raises:
        CorruptData: The content of one is not whole.
        StoreError: It cannot be read.
    """
    for message_id in message_ids:
        header, body = reader.read(message_id)
        yield message_id, header, body


def write_parquet(messages: Iterable[Content], path: Path) -> int:
    """Write a Parquet file; it is there when it is whole. Returns the number of messages.

    Raises:
        OSError: It cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema, count = _schema(), 0
    with _scratch_of(path) as scratch, parquet.ParquetWriter(scratch, schema) as writer:
        for rows in _row_groups(messages):
            writer.write_table(pa.Table.from_pylist(rows, schema))
            count += len(rows)
    return count


def _schema() -> pa.Schema:
    """Return the columns of an exported Parquet file."""
    import pyarrow as pa

    from sparkstore.tables.schema import HEADER_FIELDS

    ends = pa.field("message_id", pa.int64()), pa.field("body", pa.binary())
    return pa.schema([ends[0], *HEADER_FIELDS, ends[1]])


def _row_groups(messages: Iterable[Content]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for message_id, header, body in messages:
        rows.append({"message_id": message_id, **header._asdict(), "body": body})
        size += len(body) + header.header_bytes
        if size >= _ROW_GROUP_BYTES or len(rows) == _ROW_GROUP_ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows
