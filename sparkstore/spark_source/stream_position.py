"""The place of a stream in the log of its root: where it begins, and where it goes on.

An offset is `{"root", "position", "epoch", "at"}`: the root, and the record that the stream has
read last. Epoch 0 is a record that is not known: none was read, or history no longer has it.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping
from typing import Any

import pyarrow.dataset as ds

from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind
from sparkstore.errors import InvalidRequest
from sparkstore.recovery.recovery import read_state
from sparkstore.spark_source.record_log import RecordLog, RecordPlace
from sparkstore.spark_source.record_range import RecordRange, history_start, read_range
from sparkstore.spark_source.stream_options import EventStreamSettings
from sparkstore.tables.fencing import REPLICA
from sparkstore.tables.root import Root

_GO_ON = "or set failOnDataLoss = false"


class StreamPosition:
    """Turns offsets into positions of the log, and back.

    Args:
        log: The log of the root.
        settings: The options of the stream.
    """

    def __init__(self, log: RecordLog, settings: EventStreamSettings) -> None:
        self._log, self._settings = log, settings

    def offset(self, place: RecordPlace) -> dict[str, Any]:
        """Return the offset of a stream that has read up to a record."""
        return {"root": self._log.root().identity.root_id, **place._asdict()}

    def first(self) -> RecordPlace:
        """Return the record after which a new stream begins.

        Raises:
            InvalidRequest: The option startingPosition names one that is not there, or not yet; or
                there is no such queue.
        """
        root, end = self._log.root(), self._log.end()
        start = history_start(root)
        self._check_queue(root, end)
        if self._settings.start.is_latest:
            return end
        position = self._first_position(start, end)
        return self._log.at_position(position - 1) or RecordPlace(position - 1)

    def resumed(self, offset: Mapping[str, Any]) -> int:
        """Return the position after which a stream goes on that has read up to an offset.

        It is the offset's, unless the root has another record at it.

        Raises:
            InvalidRequest: The offset is of another root, or the records up to it are lost.
        """
        try:
            read = RecordPlace(*(int(offset[name]) for name in RecordPlace._fields))
            root = str(offset["root"])
        except (KeyError, TypeError, ValueError) as reason:
            message = f"the checkpoint has {dict(offset)}, which no stream of events wrote"
            advice = "give this query a checkpointLocation of its own"
            raise InvalidRequest(f"{message}: {advice}") from reason
        self._check_root(root)
        end = self._log.end()
        if read.position > end.position:
            self._check_is_behind(read, end)
            return read.position
        standing = self._log.at_position(read.position) if read.epoch else None
        if standing is None or standing == read:
            return read.position
        return self._diverged(read) - 1

    def _first_position(self, start: int, end: RecordPlace) -> int:
        wanted = self._settings.start
        if wanted.at is not None:
            if wanted.at > time.time_ns() // 1000:
                raise InvalidRequest("startingPosition is in the future: give a time that has been")
            return self._log.first_from(wanted.at, start) or end.position + 1
        if wanted.position is None:
            return start
        if wanted.position > end.position + 1:
            message = f"startingPosition {wanted.position} is not there yet: the last record is"
            raise InvalidRequest(f"{message} {end.position}; give latest")
        if wanted.position < start and self._settings.fails_on_loss:
            message = f"the records {wanted.position} to {start - 1} are gone: the first that is"
            raise InvalidRequest(f"{message} left is {start}; begin with it, {_GO_ON}")
        return max(start, wanted.position)

    def _check_root(self, of: str) -> None:
        root = self._log.root()
        identity = root.identity
        if of not in {identity.root_id, identity.primary_id, *identity.superseded}:
            message = f"the checkpoint is of root {of}, and {root.path} is root {identity.root_id}"
            advice = "give each root a checkpointLocation of its own"
            raise InvalidRequest(f"{message}, no copy of it: {advice}")

    def _check_is_behind(self, read: RecordPlace, end: RecordPlace) -> None:
        """Refuse a root that ends before what was read, unless it may catch up."""
        root = self._log.root()
        if root.identity.role == REPLICA or not self._settings.fails_on_loss:
            return
        message = f"{root.path} ends with record {end.position}, and the stream has read up to"
        advice = "start its store if it has not started since a power cut; else the records from"
        raise InvalidRequest(
            f"{message} {read.position}: {advice} {end.position + 1} on are lost: give a new"
            f" checkpointLocation, {_GO_ON}"
        )

    def _diverged(self, read: RecordPlace) -> int:
        """Return the first position whose record is another than the one that was read.

        It is an `opened`, since the root went on with one. Its epoch is the next after that of the
        records that were read; if their writer had started anew meanwhile, the newest `opened`
        before the offset is the one that is surely of now.
        """
        before = [place for place in self._log.openings() if place.position <= read.position]
        newer = (place.position for place in before if place.epoch > read.epoch)
        position = next(newer, before[-1].position if before else read.position)
        if self._settings.fails_on_loss:
            message = f"{self._log.root().path} has other records from position {position} on than"
            why = "a replica was promoted, or a backup restored, that ended before"
            raise InvalidRequest(
                f"{message} the stream has read, up to {read.position}: {why}; begin anew with"
                f" startingPosition = {position} and a new checkpointLocation, {_GO_ON}"
            )
        return position

    def _check_queue(self, root: Root, end: RecordPlace) -> None:
        """Refuse a queue that is not there, as a misspelt one would be waited for in vain."""
        queue = self._settings.queue
        if not queue:
            return
        wiring = read_state(root, parts=("wiring", "meta"))
        folded = max([0, *(row for row in wiring["position"].to_pylist() if row)])
        names = set(wiring["queue"].to_pylist()) - {None}
        if queue not in names and folded < end.position:
            created = ds.field("kind") == Kind.CREATED.column
            new = read_range(root, RecordRange(folded, end.position), ["queue"], created)
            names |= set(new["queue"].to_pylist()) - {None}
        if queue not in names:
            near = difflib.get_close_matches(queue, sorted(names), 1)
            advice = f"is {shown(near[0])} meant?" if near else "create it first"
            raise InvalidRequest(f"there is no queue {shown(queue)} in {root.path}: {advice}")
