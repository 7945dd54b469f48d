"""The rows of one task, staged at the store service as prepared branches.

Rows become messages, some hundred of them a branch (`sparkstore.core.state_machine.publications`
says why a batch of branches is published once). A few branches are under way at a time; each is
durable when its request is answered. A queue or a disk without room refuses a branch as a whole:
then the same rows are staged again, in a new transaction, until there is room or the patience of
this write is over. The order of messages does not suffer: that is the order in which branches are
published.

A refused row refuses its branch. So that the error names the row, the branch is then tried row by
row in a transaction that is aborted.

Whatever ends a task early, what it has staged is rolled back. What a killed task leaves behind is
on no queue, and is rolled back by the next publication (`publications`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from broker_shim.completion import Completion
from broker_shim.errors import AlreadyPublished, Full, InvalidRequest, StoreError
from broker_shim.spark_sink.message_columns import MessageColumns, RowRefused
from broker_shim.spark_sink.routes import TargetRoute
from broker_shim.spark_sink.sink_settings import SinkSettings
from broker_shim.store.interface import TransactionContext
from broker_shim.store.remote.batches import RoutedMessage
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.state_machine.publications import Attempt
from sparkstore.core.xids import Xid

BRANCH_ROWS = 1_000
_BRANCH_BYTES = 1 << 20
_UNDER_WAY = 4
_FIRST_WAIT_S, _LAST_WAIT_S = 0.05, 1.0
Rows = Iterable[Sequence[object]]


class _BranchPart(NamedTuple):
    """Rows that are one branch.

    Attributes:
        xid: Of the branch.
        first_row: Number of the first row in its partition, from 0.
        messages: The messages of the rows.
        staged: Done when the branch is prepared, or refused.
    """

    xid: Xid
    first_row: int
    messages: list[RoutedMessage]
    staged: Completion


def find_route(store: RemoteMessageStore, settings: SinkSettings) -> TargetRoute:
    """Ask for the wiring of a store, and find the target of a write in it.

    Raises:
        InvalidRequest: It is not there.
    """
    wiring = store.recover()
    return TargetRoute(wiring, settings.target, settings.target_type, settings.routing_key)


class StagedRows:
    """Stages the rows of one task; one thread."""

    def __init__(
        self,
        store: RemoteMessageStore,
        stream: str,
        batch: int,
        partition: int,
        wait_s: float,
    ) -> None:
        """Begin with no row staged.

        Args:
            store: Where to stage.
            stream: Name of the publication.
            batch: The number of the batch in that stream.
            partition: Number of the task's partition, for the errors.
            wait_s: How long to wait for room, in seconds, since there was some.
        """
        self._store, self._partition, self._wait_s = store, partition, wait_s
        self._attempt = Attempt(stream, batch, int(time.time()), f"{partition}/{uuid4().hex[:12]}")
        self._under_way: deque[_BranchPart] = deque()
        self._xids: list[Xid] = []
        self.row_count = 0

    def stage(self, rows: Rows, columns: MessageColumns, route: TargetRoute) -> list[Xid]:
        """Stage all rows, and return the branches in their order, when they are durable.

        Of a batch that is published already nothing is staged.

        Raises:
            StoreError: A row was refused, or the store had no room for too long; everything that
                was staged is rolled back.
        """
        try:
            for part in self._parts(rows, columns, route):
                self._start(part)
                self._under_way.append(part)
                if len(self._under_way) == _UNDER_WAY:
                    self._finish(self._under_way.popleft())
            while self._under_way:
                self._finish(self._under_way.popleft())
        except AlreadyPublished:  # Spark runs this batch again
            self._roll_back()
            return []
        except BaseException:
            self._roll_back()
            raise
        return self._xids

    def _parts(
        self, rows: Rows, columns: MessageColumns, route: TargetRoute
    ) -> Iterator[_BranchPart]:
        messages, size, now_us = list[RoutedMessage](), 0, time.time_ns() // 1000
        for row in rows:
            try:
                message = columns.message(row, now_us)
                queues = route.queues_of(message)
            except RowRefused as reason:
                raise self._refused(self.row_count, str(reason)) from reason
            header, body, _key = message
            if messages and (len(messages) == BRANCH_ROWS or size >= _BRANCH_BYTES):
                yield self._part(messages)
                messages, size, now_us = [], 0, time.time_ns() // 1000
            messages.append(RoutedMessage(header, body, queues))
            size += len(body) + len(header.header or b"")
            self.row_count += 1
        if messages:
            yield self._part(messages)

    def _part(self, messages: list[RoutedMessage]) -> _BranchPart:
        attempt = self._attempt
        xid = attempt._replace(part=f"{attempt.part}/{len(self._xids)}").xid
        self._xids.append(xid)
        return _BranchPart(xid, self.row_count - len(messages), messages, Completion())

    def _start(self, part: _BranchPart) -> None:
        self._store.stage_new(part.messages, part.xid, part.staged.finish)

    def _finish(self, part: _BranchPart) -> None:
        """Wait until a part is staged; where there is no room, stage it again.

        Raises:
            StoreError: There was no room for too long, or a row was refused.
        """
        until, wait_s = time.monotonic() + self._wait_s, _FIRST_WAIT_S
        while True:
            try:
                part.staged.complete()
            except Full as reason:
                if time.monotonic() >= until:
                    raise self._without_room(part, reason) from reason
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _LAST_WAIT_S)
                part = part._replace(staged=Completion())
                self._start(part)
            except AlreadyPublished:
                raise
            except InvalidRequest as reason:
                raise self._refused_of(part, reason) from reason
            else:
                return

    def _without_room(self, part: _BranchPart, reason: Full) -> Full:
        message = (
            f"{self._place(part.first_row)}: no room for {self._wait_s:g} s (waitSeconds):"
            f" {reason}; nothing of this write is on a queue. What is staged counts, so a limit"
            " of a queue must hold a whole batch"
        )
        return Full(message)

    def _refused_of(self, part: _BranchPart, reason: InvalidRequest) -> InvalidRequest:
        """Find the row for which a part was refused, by adding one after the other."""
        transaction = self._store.begin()
        refusals: list[tuple[int, StoreError]] = []
        ended = Completion()
        for index, message in enumerate(part.messages):
            self._try(index, message, transaction, refusals)
        self._store.abort(transaction, ended.finish)
        with suppress(StoreError):
            ended.complete()
        index, error = next(iter(refusals), (0, reason))
        return self._refused(part.first_row + index, str(error))

    def _try(
        self,
        index: int,
        asked: RoutedMessage,
        transaction: TransactionContext,
        refusals: list[tuple[int, StoreError]],
    ) -> None:
        def note_refusal(error: StoreError | None) -> None:
            if error is not None:
                refusals.append((index, error))

        try:
            message = self._store.message(asked.header, asked.body)
            self._store.enqueue(message, asked.queues[0], note_refusal, transaction)
        except InvalidRequest as refusal:
            note_refusal(refusal)

    def _refused(self, row: int, reason: str) -> InvalidRequest:
        message = f"{self._place(row)} is refused: {reason}; nothing of this write is on a queue"
        return InvalidRequest(message)

    def _place(self, row: int) -> str:
        return f"row {row} of partition {self._partition}"

    def _roll_back(self) -> None:
        with suppress(StoreError, TimeoutError):
            for part in self._under_way:
                with suppress(StoreError):
                    part.staged.complete(self._wait_s)
            roll_back(self._store, self._xids)


def roll_back(store: RemoteMessageStore, xids: Sequence[Xid]) -> None:
    """End branches without effect, as far as they are there; wait until that is durable.

    Raises:
        Unavailable: The service was away for too long.
    """
    ended = [Completion() for _ in xids]
    for xid, completion in zip(xids, ended, strict=True):
        store.rollback_prepared(xid, completion.finish)
    for completion in ended:
        with suppress(InvalidRequest):  # it was never prepared, or is decided
            completion.complete()
