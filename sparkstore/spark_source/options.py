"""The options of a read by `format("sparkstore")`, declared once.

Spark hands over options as texts, those of a sink with their names in lower case, so names are
compared without regard to case. A relation of SQL (`USING sparkstore`) has one set of options
for reads and writes. So an option of a write is let through, and only one of neither is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from sparkstore.errors import InvalidRequest
from sparkstore.recovery.point_in_time import microseconds

NAME = "sparkstore"


class SourceOption(NamedTuple):
    """An option that a user may give.

    Attributes:
        name: As the documents write it; any case is accepted.
        kind: Type of its value: `text`, `names` (with commas between them) or `boolean`.
        default: What holds where it is not given.
        meaning: What it does, in one sentence.
    """

    name: str
    kind: str
    default: str
    meaning: str


OPTIONS = (
    SourceOption("path", "names", "", "The root, or several with commas between."),
    SourceOption("view", "text", "queue_messages", "The view that is read."),
    SourceOption("columns", "names", "", "The columns that are read; `*` for all."),
    SourceOption("queue", "text", "", "Only rows of this queue are read."),
    SourceOption("asOf", "text", "", "The view as it stood at this time, UTC without a zone."),
    SourceOption("pushFilters", "boolean", "false", "Filters of a query are used."),
)
"""Every option of a read."""

_OF_OTHER_ROADS = frozenset({
    "kind", "settle", "selector", "leaseseconds", "startingposition", "maxrecordspertrigger",
    "maxbytespertrigger", "failondataloss", "target", "targettype", "routingkey", "socket",
    "tokenfile", "waitseconds", "txnappid", "txnversion",
})  # fmt: skip
"""Options of streams and of writes, which a table's definition may have beside those of a read."""
_OF_TABLE = "option."
"""With this begin the names of a table's options where Spark repeats them."""
_LOCATION = "location"
"""What Spark calls the path of a table."""
_OF_SPARK = frozenset({
    "checkpointlocation", "collation", "comment", "external", "is_managed_location", _LOCATION,
    "mergeschema", "owner", "provider", "queryname", "serialization.format",
})  # fmt: skip
_BY_KEY = {option.name.lower(): option for option in OPTIONS}
_KNOWN = {*_BY_KEY, *_OF_OTHER_ROADS, *_OF_SPARK}
_BOOLEANS = {"true": True, "false": False}


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
        InvalidRequest: An option is unknown, is missing, or has no such value.
    """
    values = {name.lower(): value for name, value in given.items()}
    for name in given:
        if not name.lower().startswith(_OF_TABLE):
            _check_known(name)
    for option in OPTIONS:
        values.setdefault(option.name.lower(), option.default)
    named = _names(values["path"] or _path_of_table(values))
    roots = tuple(_without_scheme(each) for each in named)
    if not roots:
        raise InvalidRequest("give the option path: the folder of a root, or the URI of its bucket")
    return ReadSettings(
        roots,
        values["view"].strip().lower(),
        _names(values["columns"]),
        values["queue"],
        _boolean("pushFilters", values["pushfilters"]),
        _time(values["asof"]),
    )


def _check_known(name: str) -> None:
    if name.lower() in _KNOWN:
        return
    near = difflib.get_close_matches(name.lower(), sorted(_KNOWN - _OF_SPARK), 1)
    wanted = _BY_KEY[near[0]].name if near and near[0] in _BY_KEY else "".join(near)
    advice = f"is {wanted} meant?" if near else f"there are {', '.join(o.name for o in OPTIONS)}"
    raise InvalidRequest(f"there is no option {name!r} of format('{NAME}'): {advice}")


def _path_of_table(values: Mapping[str, str]) -> str:
    """Return what the path of a table was before Spark made a URI of it."""
    return values.get(f"{_OF_TABLE}path", unquote(values.get(_LOCATION, "")))


def _without_scheme(path: str) -> str:
    """Undo what Spark makes of the path of a table, which is no URI: nothing in it is escaped."""
    return path.removeprefix("file:") if re.match(r"file:/(?!/)", path) else path


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _time(text: str) -> str | None:
    if text:
        microseconds(text)  # refuses what is no time, on the driver
    return text or None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise InvalidRequest(f"option {name} cannot be {text!r}: give true or false")
    return _BOOLEANS[text.lower()]
