"""A query that takes messages, driven as Spark drives it, and the service that it asks.

The order of the calls is that of PySpark 4.2, as it was traced: a batch is planned, written into
the checkpoint, read, written by the sink, and written into the checkpoint as done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from broker_shim.completion import Completion
from broker_shim.spark_tickets import TicketStreamReader, ticket_settings
from broker_shim.spark_tickets.message_rows import ticket_schema
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.fold import Entry
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.services import short_folder
from tests.support.stores.stores import TIMEOUT_S, done


class TicketPlace:
    """A root with one queue, whose service may start again at the same place."""

    def __init__(self, path: Path, **arguments: Any) -> None:
        self.path = path
        self._folder = short_folder()
        self._socket = self._folder.__enter__() / "s"
        self._start()
        done(self.serviced.store.create, Queue("q", arguments=arguments))

    def _start(self) -> None:
        self.serviced = ServicedRoot(self.path / "root")
        self._socket.unlink(missing_ok=True)
        self._socket.symlink_to(self.serviced.path)

    def restart(self) -> None:
        """Stop the service, and start it again."""
        self.serviced.stop()
        self._start()

    def stop(self) -> None:
        """End the service."""
        self.serviced.stop()
        self._folder.__exit__(None, None, None)

    def put(self, *bodies: str, **header: Any) -> None:
        """Put messages on the queue; durable unless `header` says something else."""
        told = {"durable": True, **header}
        headers = [MessageHeader("t", **told)] * len(bodies)
        new = NewMessageRun(headers, [body.encode() for body in bodies], "q")
        completion = Completion()
        outcomes: list[object] = []

        def on_complete(came: Any) -> None:
            outcomes.extend(came)
            completion.finish(None)

        with closing(RemoteMessageStore(self._socket, MemberIdentity("p", str(uuid4())))) as store:
            store.enqueue_new(new, on_complete)
            completion.complete(TIMEOUT_S)
        assert not any(outcomes)

    def entries(self) -> dict[int, Entry]:
        """What is on the queue."""
        return dict(self.serviced.store.recover().entries["q"].items())

    def holders(self) -> list[str | None]:
        """Who holds each message, in the order of the queue."""
        return [entry.acquired_by for entry in self.entries().values()]

    def end_lease(self, query: Query) -> None:
        """Have the time be over that a query keeps what it has taken."""
        self.serviced.service._lose(f"spark-{query.checkpoint[-1]['query']}")

    def options(self, **options: Any) -> dict[str, str]:
        """The options of a query of this queue."""
        given = {"settle": "true", "queue": "q", "socket": f"unix:{self._socket}"}
        return given | {name: str(value) for name, value in options.items()}


class Query:
    """What a checkpoint and a sink have of one query, over all its runs.

    Attributes:
        checkpoint: The offsets, as Spark writes them down.
        done: How many batches are done, as the checkpoint says.
        sink: What an idempotent sink has, by batch, under the name that the query gives it now. As
            Delta does, it reads nothing of a batch whose number that name has had.
        earlier: What the sink has under names that the query had before.
        reader: Of the run that is under way; None: the query is not running.
        is_available_now: Its trigger takes what is there, and ends.
    """

    def __init__(self, place: TicketPlace, **options: Any) -> None:
        self._settings = ticket_settings(place.options(**options))
        self._schema = ticket_schema(self._settings)
        self.checkpoint: list[dict[str, Any]] = []
        self.done = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.earlier: list[dict[str, Any]] = []
        self.reader: TicketStreamReader | None = None
        self.is_available_now = False
        self._steps: Iterator[str] | None = None

    def step(self) -> str:
        """Run to the next moment at which the query may be killed; what was done."""
        if self._steps is None:
            self.reader = TicketStreamReader(self._settings, self._schema)
            if self.is_available_now:
                self.reader.prepareForTriggerAvailableNow()
            self._steps = self._run(self.reader)
        return next(self._steps)

    def run(self, until: str = "idle") -> None:
        """Go on to a moment."""
        while self.step() != until:
            pass

    def kill(self) -> None:
        """End the run where it is."""
        if self.reader is not None:
            self.reader.stop()
        self.reader = self._steps = None

    def lose_checkpoint(self, *, has_own_name: bool) -> None:
        """Begin without a checkpoint, under a new name for the sink or under the old one."""
        self.checkpoint, self.done = [], 0
        if has_own_name:
            self.earlier += self._rows()
            self.sink = {}

    def bodies(self) -> list[str]:
        """What the sink has, in the order of the batches."""
        return [row["body"].decode() for row in (*self.earlier, *self._rows())]

    def _rows(self) -> list[dict[str, Any]]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    def _run(self, reader: TicketStreamReader) -> Iterator[str]:
        start = None
        if len(self.checkpoint) > self.done:
            start = self.checkpoint[-2] if self.done else reader.initialOffset()
            yield from self._batch(reader, start)
        while True:
            if self.checkpoint:
                start = self.checkpoint[-1]
            elif start is None:
                start = reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            yield "planned"
            if end == start:
                yield "idle"
                continue
            self.checkpoint.append(json.loads(json.dumps(end)))
            yield "logged"
            yield from self._batch(reader, start)

    def _batch(self, reader: TicketStreamReader, start: dict[str, Any]) -> Iterator[str]:
        rows: list[dict[str, Any]] = []
        number = len(self.checkpoint) - 1
        partitions = reader.partitions(start, self.checkpoint[-1])
        is_new = number > max(self.sink, default=-1)
        for partition in partitions if is_new else ():
            task = TicketStreamReader(self._settings, self._schema)
            for batch in task.read(partition):
                rows += batch.to_pylist()
        yield "read"
        if is_new:
            self.sink[number] = rows
        yield "written"
        self.done = len(self.checkpoint)
        yield "done"
