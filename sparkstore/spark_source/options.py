"""The options of reads and streams by `format("sparkstore")`, declared once.

Spark hands over options as texts, those of a sink with their names in lower case, so names are
compared without regard to case. A relation of SQL (`USING sparkstore`) has one set of options for
reads and writes, so a read lets an option of a write through. A read refuses an option of a stream
and a stream one of a read, as it would have no effect; the definition of a table may have both.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from sparkstore.errors import InvalidRequest
from sparkstore.recovery.point_in_time import microseconds

NAME = "sparkstore"


class SourceOption(NamedTuple):
    """An option that a user may give.

    Attributes:
        name: As the documents write it; any case is accepted.
        kind: Type of its value: `text`, `names` (with commas between them), `count` or `boolean`.
        default: What holds where it is not given.
        meaning: What it does, in one sentence.
    """

    name: str
    kind: str
    default: str
    meaning: str


_PATH = SourceOption("path", "names", "", "The root, or several with commas between.")
_COLUMNS = SourceOption("columns", "names", "", "The columns that are read; `*` for all.")
_QUEUE = SourceOption("queue", "text", "", "Only rows of this queue are read.")
OPTIONS = (
    _PATH,
    SourceOption("view", "text", "queue_messages", "The view that is read."),
    _COLUMNS,
    _QUEUE,
    SourceOption("asOf", "text", "", "The view as it stood at this time, UTC without a zone."),
    SourceOption("pushFilters", "boolean", "false", "Filters of a query are used."),
)
"""Every option of a read."""
STREAM_OPTIONS = (
    _PATH,
    SourceOption("kind", "names", "", "The kinds of events that a stream has; `*` for all."),
    _COLUMNS,
    _QUEUE,
    SourceOption("startingPosition", "text", "earliest", "Where a new stream begins."),
    SourceOption("maxRecordsPerTrigger", "count", "", "Most records of the log in a batch."),
    SourceOption("maxBytesPerTrigger", "count", "", "Most bytes of messages in a batch."),
    SourceOption("failOnDataLoss", "boolean", "true", "Records that are gone end the stream."),
    SourceOption("readInDriver", "boolean", "false", "Tasks need no folder of the root."),
)
"""Every option of a stream of events."""
TICKET_OPTIONS = (
    _PATH,
    SourceOption("queue", "text", "", "The queue that messages are taken from."),
    SourceOption("settle", "boolean", "false", "The stream takes messages, each once."),
    SourceOption("selector", "text", "", "Only messages that it selects are taken, as in JMS."),
    SourceOption("leaseSeconds", "count", "600", "How long a query that is gone keeps messages."),
    SourceOption("maxRecordsPerTrigger", "count", "50000", "Most messages in a batch."),
    SourceOption("maxBytesPerTrigger", "count", "", "A batch of so many bytes takes no more."),
    _COLUMNS,
    SourceOption("failOnDataLoss", "boolean", "true", "A batch that lost messages is an error."),
    SourceOption("socket", "text", "", "The address of the store service, instead of `path`."),
    SourceOption("tokenFile", "text", "", "The file with the service's token, for `tcp:`."),
    SourceOption("waitSeconds", "text", "60", "How long a service that is away is waited for."),
)
"""Every option of a stream that takes messages."""
TAKING_OPTIONS = ("settle", "selector", "leaseSeconds")
"""Those that no other road has."""

STREAM_ONLY = {
    name.lower(): name
    for name in (*(option.name for option in STREAM_OPTIONS), *TAKING_OPTIONS)
    if name not in {"path", "kind", "columns", "queue"}
}
"""By their names in lower case, what has no effect on a write, nor in a view of SQL."""

_OF_WRITES = frozenset({
    "target", "targettype", "routingkey", "socket", "tokenfile", "waitseconds", "txnappid",
    "txnversion",
})  # fmt: skip
"""Options of writes, which a view of SQL may have beside those of a read."""
_OF_TABLE = "option."
"""With this begin the names of a table's options where Spark repeats them."""
_VIEW = "CREATE TEMPORARY VIEW … USING sparkstore"
"""What has its options at each use: Spark 4.2 gives a source in Python none of a table's."""
_LOCATION = "location"
"""What Spark calls the path of a table."""
_OF_SPARK = frozenset({
    "checkpointlocation", "collation", "comment", "external", "is_managed_location", _LOCATION,
    "mergeschema", "owner", "provider", "queryname", "serialization.format",
})  # fmt: skip
_NAMES = {
    **{option.name.lower(): option.name for option in (*OPTIONS, *STREAM_OPTIONS)},
    **{name.lower(): name for name in TAKING_OPTIONS},
    **{name: name for name in _OF_WRITES},
}
_BOOLEANS = {"true": True, "false": False}
_MOST = 1 << 62


class ReadSettings(NamedTuple):
    """The options of a read, checked.

    Attributes:
        roots: The roots: folders, or URIs of buckets.
        view: The name of the view.
        columns: Names of columns; none: the usual ones, without bodies; `*`: all.
        queue: Only rows of this queue; empty: of all.
        pushes_filters: Spark's filters are used, which needs a setting of the session.
        as_of: The view is as it stood at this time, or position; None: as it is.
    """

    roots: tuple[str, ...]
    view: str
    columns: tuple[str, ...]
    queue: str
    pushes_filters: bool
    as_of: str | None = None


def read_options(given: Mapping[str, str]) -> ReadSettings:
    """Check what was given for a read.

    Raises:
        InvalidRequest: An option is unknown, is missing, has no such value, or is of a stream.
    """
    values = option_values(given, OPTIONS)
    return ReadSettings(
        roots_of(values),
        values["view"].strip().lower(),
        names_in(values["columns"]),
        values["queue"],
        boolean("pushFilters", values["pushfilters"]),
        _time(values["asof"]),
    )


def option_values(given: Mapping[str, str], options: Sequence[SourceOption]) -> dict[str, str]:
    """Return the values of a road's options by their names in lower case, and all defaults.

    Args:
        given: What the user gave, and what Spark adds to it.
        options: The options that this road has.

    Raises:
        InvalidRequest: An option is unknown, or of another road.
    """
    values = {name.lower(): value for name, value in given.items()}
    own = {option.name.lower() for option in options}
    is_table = any(name.startswith(_OF_TABLE) for name in values)
    for name in given:
        key = name.lower()
        if key in own or key in _OF_SPARK or key in _OF_WRITES or key.startswith(_OF_TABLE):
            continue
        if key not in _NAMES:
            raise InvalidRequest(_unknown(name, options))
        if not is_table:
            raise InvalidRequest(f"option {_NAMES[key]} is one of {_road(key)}, or leave it out")
    for option in options:
        values.setdefault(option.name.lower(), option.default)
    return values


def roots_of(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the roots that the options name.

    Raises:
        InvalidRequest: They name none.
    """
    named = names_in(values["path"] or _path_of_table(values))
    roots = tuple(_without_scheme(root) for root in named)
    if not roots:
        message = "give the option path: the folder of a root, or the URI of its bucket"
        raise InvalidRequest(f"{message}; a table of CREATE TABLE loses it: {_VIEW} instead")
    return roots


def names_in(text: str) -> tuple[str, ...]:
    """Split a list with commas between its names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def boolean(name: str, text: str) -> bool:
    """Read the value of an option that is true or false.

    Raises:
        InvalidRequest: It is neither.
    """
    if text.lower() not in _BOOLEANS:
        raise InvalidRequest(f"option {name} cannot be {text!r}: give true or false")
    return _BOOLEANS[text.lower()]


def count(name: str, text: str) -> int | None:
    """Read the value of an option that is a number from 1; None where it was not given.

    Raises:
        InvalidRequest: It is no such number.
    """
    if not text:
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not 1 <= int(text) < _MOST:
        raise InvalidRequest(f"option {name} cannot be {text!r}: give a number from 1")
    return int(text)


def is_taking(given: Mapping[str, str]) -> bool:
    """Return whether the options are those of a stream that takes messages.

    Raises:
        InvalidRequest: The option settle is neither true nor false.
    """
    values = {name.lower(): value for name, value in given.items()}
    return boolean("settle", values.get("settle", "false"))


def _time(text: str) -> str | None:
    if text:
        microseconds(text)  # refuses what is no time, on the driver
    return text or None


def _road(key: str) -> str:
    """Say which road has an option that another one was given."""
    if key in {name.lower() for name in TAKING_OPTIONS}:
        return "a stream that takes messages: use spark.readStream with settle = true"
    if key in {option.name.lower() for option in STREAM_OPTIONS}:
        return "a stream: use spark.readStream"
    return "a read: use spark.read"


def _unknown(name: str, options: Sequence[SourceOption]) -> str:
    near = difflib.get_close_matches(name.lower(), sorted(_NAMES), 1)
    names = ", ".join(option.name for option in options)
    advice = f"is {_NAMES[near[0]]} meant?" if near else f"there are {names}"
    return f"there is no option {name!r} of format('{NAME}'): {advice}"


def _path_of_table(values: Mapping[str, str]) -> str:
    """Return what the path of a table was before Spark made a URI of it."""
    return values.get(f"{_OF_TABLE}path", unquote(values.get(_LOCATION, "")))


def _without_scheme(path: str) -> str:
    """Undo what Spark makes of the path of a table, which is no URI: nothing in it is escaped."""
    return path.removeprefix("file:") if re.match(r"file:/(?!/)", path) else path
