"""New messages that go to the store together: runs of them, each message for itself, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.messages.delivery_time import may_wait
from broker_shim.store.interface import MessageHeader, NewMessageRun
from sparkstore.core.records import each_header

OnDone = Callable[[int, Sequence[StoreError | None]], None]


class Publication(NamedTuple):
    """A run of new messages, and the queues that all of them go to.

    Attributes:
        headers: One for each message, or one that all of them share.
        contents: The whole content of each.
        queues: Names of queues.
    """

    headers: Sequence[MessageHeader]
    contents: Sequence[bytes]
    queues: Collection[str]


class PublicationRuns:
    """Messages that wait to be published: neighbours that go to the same queues are one run."""

    def __init__(self) -> None:
        """Begin with no message."""
        self._runs: list[tuple[list[MessageHeader], list[bytes], Collection[str]]] = []

    def add(
        self,
        headers: Sequence[MessageHeader],
        contents: Sequence[bytes],
        queues: Collection[str],
    ) -> None:
        """Add messages behind the others; all of them may share one header."""
        if not self._runs or self._runs[-1][2] != queues:
            self._runs.append(([], [], queues))
        its_headers, its_contents, _queues = self._runs[-1]
        its_headers += each_header(headers, len(contents))
        its_contents += contents

    def taken(self) -> Sequence[Publication]:
        """Hand out all runs, and begin anew."""
        runs, self._runs = self._runs, []
        return [
            Publication(headers if len({*map(id, headers)}) > 1 else headers[:1], contents, queues)
            for headers, contents, queues in runs
        ]


Publish = Callable[[MessageHeader, bytes, Collection[str], OnComplete], None]


class Publications:
    """Publishes many messages at once. On the loop's thread only."""

    def __init__(self, served: ServedQueues, publish: Publish) -> None:
        """Publish nothing yet; `publish` puts one message on queues, all or none."""
        self._served, self._publish = served, publish

    def publish(self, runs: Sequence[Publication], on_done: OnDone) -> None:
        """Put new messages on queues, in their order: each for itself, as by `publish`.

        What needs nothing but an enqueue goes to the store together.

        Args:
            runs: Messages that wait, in their order.
            on_done: Called some times: with the number of the first message that is told of, of all
                that were given, and what came of it and those after it.
        """
        first = 0
        for run in runs:
            queue = self._only(run)
            if queue is not None:
                self._enqueue(NewMessageRun(run.headers, run.contents, queue), first, on_done)
            else:
                self._publish_each(run, first, on_done)
            first += len(run.contents)

    def _only(self, run: Publication) -> str | None:
        """The one queue of a run, if every message of it that is sent there just waits on it."""
        if len(run.queues) != 1:
            return None
        (name,) = run.queues
        queue = self._served.queues.get(name)
        is_plain = queue is not None and queue.only is None and queue.last_values is None
        may_be_staged = max(map(len, run.contents)) > STAGED_BYTES
        return name if is_plain and not (may_be_staged or any(map(may_wait, run.headers))) else None

    def _publish_each(self, run: Publication, first: int, on_done: OnDone) -> None:
        """Put messages on queues one by one."""
        messages = zip(each_header(run.headers, len(run.contents)), run.contents, strict=True)
        for number, (header, content) in enumerate(messages, first):
            self._publish(header, content, run.queues, partial(_one_done, on_done, number))

    def _enqueue(self, messages: NewMessageRun, first: int, on_done: OnDone) -> None:
        """Put a run on its queue."""

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._all_wait(messages, ids, outcomes)
            on_done(first, outcomes)

        self._served.calls.enqueue_new(messages, done)

    def _all_wait(
        self,
        messages: NewMessageRun,
        ids: Sequence[int],
        outcomes: Sequence[StoreError | None],
    ) -> None:
        """Dispatch new messages that are on their queue, but for those that were refused."""
        headers = messages.headers
        are_alike = len({(header.priority, header.durable) for header in headers}) == 1
        if are_alike and not any(outcomes):
            self._came(ids, messages.queue, headers[0])
            return
        came = zip(each_header(headers, len(messages.bodies)), ids, outcomes, strict=True)
        stored = [(header, message_id) for header, message_id, error in came if error is None]
        for _alike, some in groupby(stored, lambda its: (its[0].priority, its[0].durable)):
            alike = [*some]
            self._came([message_id for _header, message_id in alike], messages.queue, alike[0][0])

    def _came(self, message_ids: Sequence[int], queue: str, header: MessageHeader) -> None:
        self._served.metrics.enqueued += len(message_ids)
        self._served.wait(queue, message_ids, header.priority, durable=header.durable)


def _one_done(on_done: OnDone, number: int, error: StoreError | None) -> None:
    on_done(number, (error,))
