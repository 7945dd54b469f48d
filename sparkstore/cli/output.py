"""Print the answers of commands: tables for people, one JSON object a line for machines."""

from __future__ import annotations

import json
import re
import unicodedata
from argparse import Namespace
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from sparkstore.core.records import MessageHeader

MAX_COLUMN_WIDTH = 60

Row = Mapping[str, Any]


def printable(text: str) -> str:
    r"""Text that cannot drive a terminal: control and formatting characters as `\n`, `\x1b`, ….

    A queue's name, a header and a body are what a sender chose.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def escape_what_cannot_be_encoded(stream: TextIO) -> None:
    r"""Have a stream write characters that its encoding lacks as `\u2026`, as standard error does.

    A terminal in Latin-1 or ASCII shows a name in UTF-8 so, and no command ends for it.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """Return an engine's message of several, maybe coloured, lines as one line of plain text."""
    plain = _COLOURS.sub("", text)
    return printable(" ".join(filter(None, map(str.strip, plain.splitlines()))))


_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def of_the_system(reason: OSError) -> str:
    """Return the reason of an `OSError` in words, without its class and number."""
    if reason.strerror is None:
        return str(reason)
    return f"{reason.filename}: {reason.strerror}" if reason.filename else reason.strerror


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def body_text(body: bytes) -> str:
    """A body on one line: as UTF-8 if it is, else in hexadecimal."""
    try:
        return printable(body.decode())
    except UnicodeDecodeError:
        return "0x" + body.hex()


def body_as_json(body: bytes) -> dict[str, str]:
    """A body as `body` if it is UTF-8, else as `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode("ascii")}


_NOT_TYPED = {"header", "properties", "protocol"}
_TIMES = {"created_at", "expires_at"}


def message_as_json(message_id: int, header: MessageHeader, body: bytes) -> dict[str, Any]:
    """Describe a message with its content: what is UTF-8 as text, other bytes in base64."""
    typed = {
        name: time_of(value) if name in _TIMES else value
        for name, value in header._asdict().items()
        if name not in _NOT_TYPED and value is not None
    }
    return {
        "message_id": message_id,
        "protocol": header.protocol,
        "header": typed,
        "header_base64": b64encode(header.header or b"").decode("ascii"),
        "properties": dict(header.properties),
        **body_as_json(body),
    }


def time_of(at_us: int | None) -> datetime | None:
    """UTC µs as a time."""
    return None if at_us is None else datetime.fromtimestamp(at_us / 1_000_000, UTC)


def time_said(text: str) -> datetime | str:
    """Read a time of a broker's answer."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # a year that no calendar has
        return text


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """A JSON object for each row: ASCII, so that nothing in it can drive a terminal."""
    for row in rows:
        yield json.dumps(row, default=_plain)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return str(value)


def table(
    rows: Sequence[Row], columns: Sequence[str] = (), *, width: int = MAX_COLUMN_WIDTH
) -> Iterator[str]:
    """Rows under their column names, numbers to the right; a cell that is cut ends in `…`.

    Args:
        rows: All with the same columns.
        columns: Their names, needed when there may be no row.
        width: Characters of the longest cell.
    """
    names = list(columns or (rows[0] if rows else ()))
    cells = [[_cell(row[name], width) for name in names] for row in rows]
    widths = [
        max([_width(name), *(_width(line[at]) for line in cells)]) for at, name in enumerate(names)
    ]
    right = [_is_number(rows, name) for name in names]
    headings = [printable(name) for name in names]
    for line in (headings, ["-" * width for width in widths], *cells):
        padded = map(_padded, line, widths, right)
        yield "  ".join(padded).rstrip()


def fields(row: Row) -> Iterator[str]:
    """Print one row, a line for each column; nothing is cut."""
    width = max(map(len, row), default=0)
    for name, value in row.items():
        yield f"{name:{width}}  {_text(value)}"


def show_rows(arguments: Namespace, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Print rows: a table of some columns for people, an object a line for machines."""
    shown = ({name: row.get(name) for name in columns} for row in rows)
    print_lines(json_lines(rows) if arguments.json else table([*shown], columns))


def show_row(arguments: Namespace, row: Row) -> None:
    """Print one answer: a line for each field for people, an object for machines."""
    print_lines(json_lines([row]) if arguments.json else fields(row))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    for line in lines:
        print(line)


def _cell(value: Any, width: int) -> str:
    text = _text(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(value: Any) -> str:
    """A value as it is: a number can be pasted into the next command."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    if isinstance(value, bytes | bytearray):
        value = body_text(bytes(value))
    elif isinstance(value, _AS_WRITTEN) and not isinstance(value, bool):
        value = str(value)
    elif not isinstance(value, str):
        value = json.dumps(value, default=_plain, ensure_ascii=False)
    return printable(value)


_AS_WRITTEN = (int, float, Decimal, date, time, timedelta)


def _is_number(rows: Sequence[Row], name: str) -> bool:
    numbers = int | float | Decimal
    return any(isinstance(row[name], numbers) and not isinstance(row[name], bool) for row in rows)


def _padded(text: str, width: int, right: bool) -> str:  # noqa: FBT001  # one call, by map
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
