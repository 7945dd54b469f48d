"""The options of a stream of events, read from the texts that Spark hands over."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sparkstore.core.queue_names import canonical
from sparkstore.core.records import Kind
from sparkstore.errors import InvalidRequest
from sparkstore.recovery.point_in_time import as_of_position, microseconds
from sparkstore.spark_source.options import (
    NAME,
    STREAM_OPTIONS,
    boolean,
    count,
    names_in,
    option_values,
    roots_of,
)
from sparkstore.storage.objects import is_object_uri

KINDS = tuple(kind.column for kind in Kind)
"""The kinds of events, as the tables spell them."""
EARLIEST, LATEST = "earliest", "latest"
_ALL = ("*",)
_FORMS = "earliest, latest, a position, or a time as '2026-11-22 10:00' or '2026-11-22T10:00+01:00'"


class StreamStart(NamedTuple):
    """Where a new stream begins; all None: with the first record that history has.

    Attributes:
        is_latest: After the last record there is.
        position: With this record.
        at: With the first record of this time or later, UTC µs.
    """

    is_latest: bool = False
    position: int | None = None
    at: int | None = None


class EventStreamSettings(NamedTuple):
    """The options of a stream of events, checked; picklable, since every task gets them.

    Attributes:
        root: The folder of the root, or the URI of its bucket.
        kinds: The kinds of events that it has, none: all.
        columns: Names of columns; none: the usual ones, without content; `*`: all.
        queue: Only events of this queue; empty: of all, and of no queue.
        start: Where it begins.
        max_records: Most records of the log in a batch, those left out too; None: no limit.
        max_bytes: Most bytes of messages that its records bring; None: no limit.
        fails_on_loss: Records that are gone end it; else it goes on with what is left.
        reads_in_driver: Tasks get the rows, and need no folder of the root.
    """

    root: str
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    queue: str
    start: StreamStart
    max_records: int | None
    max_bytes: int | None
    fails_on_loss: bool
    reads_in_driver: bool = False


def is_of_events(given: Mapping[str, str]) -> bool:
    """Return whether the options are those of a stream of events: they say which kinds."""
    return any(name.lower() == "kind" for name in given)


def stream_options(given: Mapping[str, str]) -> EventStreamSettings:
    """Check what was given for a stream of events.

    Raises:
        InvalidRequest: An option is unknown, is missing, has no such value, or is of a read.
    """
    values = option_values(given, STREAM_OPTIONS)
    if not values["kind"].strip():
        message = f"a stream of format('{NAME}') needs the option kind: enqueued, for example"
        raise InvalidRequest(f"{message}, or * for all")
    roots = roots_of(values)
    if len(roots) > 1:
        raise InvalidRequest(f"a stream reads one root, not {len(roots)}: join streams by union")
    return EventStreamSettings(
        roots[0],
        _kinds(names_in(values["kind"])),
        names_in(values["columns"]),
        canonical(values["queue"]),
        _start(values["startingposition"].strip()),
        count("maxRecordsPerTrigger", values["maxrecordspertrigger"]),
        count("maxBytesPerTrigger", values["maxbytespertrigger"]),
        boolean("failOnDataLoss", values["failondataloss"]),
        boolean("readInDriver", values["readindriver"]) or is_object_uri(roots[0]),
    )


def _kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    if names == _ALL:
        return ()
    for name in names:
        if name not in KINDS:
            near = difflib.get_close_matches(name.lower(), KINDS, 1)
            advice = f"is {near[0]} meant?" if near else f"there are {', '.join(KINDS)}"
            raise InvalidRequest(f"there is no kind {name!r} of events: {advice}")
    return tuple(dict.fromkeys(names))


def _start(text: str) -> StreamStart:
    """Read the option startingPosition; a time without a zone is UTC."""
    if text.lower() in {EARLIEST, LATEST}:
        return StreamStart(is_latest=text.lower() == LATEST)
    number = f"position={text}" if text.isdecimal() else text
    with suppress(InvalidRequest):
        start = StreamStart(position=as_of_position(number), at=microseconds(number))
        if start.position is None or start.position > 0:
            return start
    raise InvalidRequest(f"option startingPosition cannot be {text!r}: give {_FORMS}")
