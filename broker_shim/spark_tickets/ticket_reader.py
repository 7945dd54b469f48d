"""The reader that Spark drives: it takes a ticket for each batch, and settles the one before.

An offset is `{"root", "queue", "query", "ticket", "kept", "noted"}`: the ticket that the query has
taken last, how many of its messages outlive a restart of the store, and that its tasks note that
they have read it. The query's own name is drawn
when it has no checkpoint yet, and kept in it. `commit` does nothing: Spark calls it a batch late,
and not at all for the last one (`broker_shim.spark_tickets` says when what is settled).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broker_shim.completion import Completion
from broker_shim.errors import Fenced, InvalidRequest, StoreError
from broker_shim.spark_sink.task_store import open_store
from broker_shim.spark_tickets.message_rows import check_ticket_columns, message_batch
from broker_shim.spark_tickets.ticket_settings import TicketSettings
from broker_shim.spark_tickets.ticket_store import TicketMessage, TicketStore, member_of
from broker_shim.store.interface import StoredMessage
from broker_shim.store.reads import Loaded
from sparkstore.core.queue_names import shown

_log = logging.getLogger(__name__)

_TASK_MESSAGES = 12_500
"""Messages of a task: a fifth of it costs five times as many, and each begins anew."""
_BATCH_ROWS = 1_000
_ADVICE = "give this query a checkpointLocation of its own"


class TicketOffset(NamedTuple):
    """An offset of a query. See the module.

    Attributes:
        root: Identity of the root.
        queue: Name of the queue.
        query: Stands for the query, the same after its restarts.
        ticket: Number of the ticket; 0: none was taken.
        kept: How many of its messages outlive a restart of the store.
        noted: Its tasks note that they have read it; earlier releases did not.
    """

    root: str
    queue: str
    query: str
    ticket: int
    kept: int
    noted: bool = False


class TicketTask(NamedTuple):
    """A part of a ticket, for one task: messages, and how often a delivery of each has failed.

    A message is its id alone, unless its content is there already.

    Attributes:
        ticket: Number of the ticket.
        query: For the first task of the ticket, which notes that it is read; else empty.
        messages: What it reads.
        counts: Of each, how often a delivery has failed.
    """

    ticket: int
    query: str
    messages: tuple[StoredMessage | int, ...]
    counts: tuple[int, ...]


class TaskPartition(InputPartition):
    """The partition of one task, as Spark hands it over."""

    def __init__(self, value: tuple[Any, ...]) -> None:
        super().__init__(value)


class TicketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes the messages of one queue, each once. See `broker_shim.spark_tickets`."""

    def __init__(self, settings: TicketSettings, schema: StructType) -> None:
        """Check the columns; nothing is asked of the store yet, as each task makes a reader.

        Raises:
            InvalidRequest: A column is not there.
        """
        check_ticket_columns(schema.names)
        self._settings, self._schema = settings, schema
        self._store: TicketStore | None = None
        self._query = ""
        self._is_limited = self._has_told = False
        self._left: int | None = None
        self._lost = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before the first ticket of a query without a checkpoint.

        Spark asks more than once, also in a run that has an offset of the query already.

        Raises:
            StoreError: There is no such queue, or no service answers.
        """
        self._query = self._query or uuid4().hex
        store = self._store_of(self._query)
        return TicketOffset(store.root_id, self._settings.queue, self._query, 0, 0)._asdict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options; that of bytes holds as well."""
        return ReadMaxRows(self._settings.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no more in this run than what waits when it begins."""
        self._is_limited, self._left = True, None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Settle the ticket of `start`, and take the next; `start` if nothing waits.

        Spark calls this after it has written down that the batch of `start` is done.

        Raises:
            InvalidRequest: The offset is of another root or queue, or the queue is gone; nobody has
                read the ticket of `start`, or a later one was read.
            StoreError: The service was away for too long.
        """
        done = self._offset(start)
        store = self._store_after(done)
        self._check_read(done, store)
        self._settle(store, done.ticket)
        self._tell_others(done, store)
        ticket = done.ticket + 1
        if not store.held.get(ticket):
            most = self._settings.max_records
            if isinstance(limit, ReadMaxRows):
                most = min(most, limit.max_rows)
            most = min(most, self._available(store, most))
            taken = store.take(ticket, most) if most else []
            if self._left is not None:
                self._left -= len(taken)
            if not taken:
                return start
        kept = sum(message.is_kept for message in store.held[ticket].values())
        offset = done._replace(root=store.root_id, ticket=ticket, kept=kept, noted=True)
        return offset._asdict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the tickets of a batch into tasks; a batch that runs again has the same messages.

        Raises:
            InvalidRequest: The offset is of another root or queue; messages were given back, as
                the lease of the query had ended; a later ticket was read.
        """
        last = self._offset(end)
        store = self._store_after(last)
        self._check_newest(last, store.last_read())
        first = self._offset(start).ticket + 1
        tasks: list[InputPartition] = []
        for ticket in range(first, last.ticket + 1):
            held = store.held.get(ticket, {})
            kept_count = sum(message.is_kept for message in held.values())
            if ticket == last.ticket and kept_count < last.kept:
                self._check_loss(last, kept_count)
            tasks += _tasks(ticket, last.query, [held[message_id] for message_id in sorted(held)])
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Load the content of messages, in a task.

        Raises:
            StoreError: It cannot be read, or the service was away for too long.
        """
        task = TicketTask(*partition.value)
        if task.query:
            self._note_read(task)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for first in range(0, len(task.messages), _BATCH_ROWS):
            part = task.messages[first : first + _BATCH_ROWS]
            counts = task.counts[first : first + _BATCH_ROWS]
            messages = self._loaded(part)
            yield message_batch(messages, counts, self._settings.queue, task.ticket, schema)

    def _note_read(self, task: TicketTask) -> None:
        """Note that the sink reads a ticket, durably and before it has a row of it.

        Raises:
            StoreError: A later ticket was read; or the service was away for too long.
        """
        noted = Completion()
        with open_store(self._settings) as store:
            store.publish(member_of(task.query), task.ticket, [], noted.finish)
            noted.complete()

    def _loaded(self, messages: Sequence[StoredMessage | int]) -> list[StoredMessage]:
        """Load the messages of which only the id is there.

        Raises:
            StoreError: One cannot be read.
        """
        ids = [one for one in messages if isinstance(one, int)]
        loaded = {one.message_id: one for one in _load(self._settings, ids)} if ids else {}
        return [loaded[one] if isinstance(one, int) else one for one in messages]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is settled, `latestOffset` settles."""

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Say for the progress of the query what waits on the queue, is held, and was lost."""
        store = self._store
        if store is None:
            return None
        waiting = store.waiting_count()
        held = sum(map(len, store.held.values()))
        return {
            "queue": self._settings.queue,
            "messagesWaiting": waiting,
            "messagesHeld": held,
            "messagesLost": self._lost,
            "messagesOfOtherQueries": sum(store.others.values()),
        }

    def stop(self) -> None:
        """Hang up; Spark does not always call this, so it ends nothing else."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _store_of(self, query: str, root_id: str | None = None) -> TicketStore:
        """Connect as a query; a first offset is drawn anew if the one before never was kept."""
        if self._store is not None and self._query != query:
            self.stop()
        if self._store is None:
            self._store, self._query = TicketStore(self._settings, query, root_id), query
        return self._store

    def _store_after(self, offset: TicketOffset) -> TicketStore:
        """Connect as the query of a checkpoint.

        Raises:
            InvalidRequest: The checkpoint is of another root or queue.
        """
        if offset.queue != self._settings.queue:
            message = f"the checkpoint is of queue {shown(offset.queue)}, and the option queue is"
            raise InvalidRequest(f"{message} {shown(self._settings.queue)}: {_ADVICE}")
        try:
            return self._store_of(offset.query, offset.root)
        except Fenced as reason:
            message = f"the checkpoint is of root {offset.root}, and the store serves another one"
            raise InvalidRequest(f"{message}: {_ADVICE}") from reason

    def _check_read(self, done: TicketOffset, store: TicketStore) -> None:
        """Refuse to settle what no task has read: the sink has left out its batch.

        Raises:
            InvalidRequest: So it is, or a later ticket was read.
        """
        read = store.last_read()
        self._check_newest(done, read)
        count = len(store.held.get(done.ticket, {}))
        if done.root != store.root_id and done.ticket not in {0, read}:
            message = f"the root was promoted without ticket {done.ticket}, which this query has"
            raise InvalidRequest(f"{message} read, so its messages may wait again: {_ADVICE}")
        if not done.noted or read == done.ticket or not count:
            return
        if not self._settings.fails_on_loss:
            self._lost += count
            return
        message = (
            f"the sink never read ticket {done.ticket}, so it left out that batch of {count}"
            f" messages, as Delta does if the txnAppId had its txnVersion before. They are not"
            f" settled, and wait again {self._settings.lease_s} s after the end of this query. Use"
            " the query's own id as txnAppId, and give the query a new checkpointLocation"
        )
        raise InvalidRequest(message)

    @staticmethod
    def _check_newest(offset: TicketOffset, read: int) -> None:
        """Refuse a checkpoint that was put back: its next batch has a number that was used.

        Raises:
            InvalidRequest: A later ticket was read.
        """
        if read <= offset.ticket:
            return
        message = (
            f"the checkpoint ends at ticket {offset.ticket}, and the query has read ticket {read}:"
            " it is an old copy, and the sink may know the numbers of its next batches. Give this"
            " query a new checkpointLocation"
        )
        raise InvalidRequest(message)

    def _tell_others(self, done: TicketOffset, store: TicketStore) -> None:
        """Tell a new query what others hold: one may be itself, without its checkpoint."""
        if self._has_told or done.ticket or not store.others:
            return
        self._has_told = True
        _log.warning(
            "a new query takes from queue %s, of which other queries hold messages: %s. If one of"
            " them lost its checkpoint, these wait again when its lease is over, and come twice if"
            " its sink has them",
            shown(self._settings.queue),
            ", ".join(f"{count} of {holder}" for holder, count in sorted(store.others.items())),
        )

    def _settle(self, store: TicketStore, ticket: int) -> None:
        for held_ticket in sorted(held for held in store.held if held <= ticket):
            self._lost += store.settle(held_ticket)

    def _available(self, store: TicketStore, most: int) -> int:
        """How many messages may be taken: in a run that takes what is there, what is left of it."""
        if not self._is_limited:
            return most
        if self._left is None:
            self._left = store.waiting_count()
        return max(0, self._left)

    def _check_loss(self, offset: TicketOffset, kept_count: int) -> None:
        lost = offset.kept - kept_count
        if not self._settings.fails_on_loss:
            self._lost += lost
            return
        message = (
            f"{lost} of {offset.kept} messages of ticket {offset.ticket} are not held any more:"
            f" the query was gone for longer than its lease ({self._settings.lease_s} s), and they"
            " wait again or were taken by others. If the sink has this batch, go on with"
            " failOnDataLoss = false; else give the query a new checkpointLocation"
        )
        raise InvalidRequest(message)

    @staticmethod
    def _offset(json: Mapping[str, Any]) -> TicketOffset:
        try:
            root, queue, query = (str(json[name]) for name in ("root", "queue", "query"))
            ticket, kept, noted = int(json["ticket"]), int(json["kept"]), json.get("noted", False)
            return TicketOffset(root, queue, query, ticket, kept, noted is True)
        except (KeyError, TypeError, ValueError) as reason:
            message = f"the checkpoint has {dict(json)}, which no stream with settle = true wrote"
            advice = "give this query a checkpointLocation of its own"
            raise InvalidRequest(f"{message}: {advice}") from reason


def _tasks(ticket: int, query: str, messages: Sequence[TicketMessage]) -> list[InputPartition]:
    tasks: list[InputPartition] = []
    for first in range(0, len(messages), _TASK_MESSAGES):
        part = messages[first : first + _TASK_MESSAGES]
        contents = tuple(message.message or message.message_id for message in part)
        counts = tuple(message.delivery_count for message in part)
        task = TicketTask(ticket, "" if tasks else query, contents, counts)
        tasks.append(TaskPartition(tuple(task)))
    return tasks


def _load(settings: TicketSettings, ids: Sequence[int]) -> list[StoredMessage]:
    """Ask the store service for messages, a few at a time.

    Raises:
        StoreError: One cannot be read, or the service was away for too long.
    """
    with open_store(settings) as store:
        came: SimpleQueue[Loaded] = SimpleQueue()
        store.prefetch(ids, lambda _message_id, loaded: came.put(loaded))
        return [_there(came.get()) for _ in ids]


def _there(loaded: Loaded) -> StoredMessage:
    if isinstance(loaded, StoreError):
        raise loaded
    return loaded
