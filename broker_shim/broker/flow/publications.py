"""New messages on their way to the store: runs of them, and one on several queues, all or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from broker_shim.broker.flow.last_value_queues import OUTCOME, LastValueQueues, Replaced
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.storage.store_puts import STAGED_BYTES, Along, Staged
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.messages.delivery_time import may_wait, wanted_time
from broker_shim.store.interface import MessageHeader, NewMessageRun, StoredMessage
from sparkstore.core.records import each_header
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall

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


def waits_only(served: ServedQueues, run: Publication) -> bool:
    """Tell whether all messages of a run that are put on its queues just wait there."""
    queues = [served.queues.get(name) for name in run.queues]
    may_be_staged = max(map(len, run.contents)) > STAGED_BYTES
    are_plain = all(
        queue is not None and queue.only is None and queue.last_values is None for queue in queues
    )
    return bool(queues) and are_plain and not (may_be_staged or any(map(may_wait, run.headers)))


Publish = Callable[[MessageHeader, bytes, Collection[str], OnComplete], None]
"""Publications.publish_one"""


class Publications:
    """Publishes messages. On the loop's thread only."""

    def __init__(self, served: ServedQueues, last_values: LastValueQueues) -> None:
        self._served, self._last_values = served, last_values

    def publish(self, runs: Sequence[Publication], on_done: OnDone) -> None:
        """Put new messages on queues, in their order: each for itself, as by `publish_one`.

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
        return name if waits_only(self._served, run) else None

    def _publish_each(self, run: Publication, first: int, on_done: OnDone) -> None:
        """Put messages on queues one by one."""
        messages = zip(each_header(run.headers, len(run.contents)), run.contents, strict=True)
        for number, (header, content) in enumerate(messages, first):
            self.publish_one(header, content, run.queues, partial(_one_done, on_done, number))

    def _enqueue(self, messages: NewMessageRun, first: int, on_done: OnDone) -> None:
        """Put a run on its queue."""

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._all_wait(messages, ids, outcomes)
            on_done(first, outcomes)

        self._served.calls.enqueue_new(messages, done)

    def publish_one(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        queues: Iterable[str],
        on_done: OnComplete,
        along: Along | None = None,
    ) -> None:
        """Put a message on queues, all or none; `on_done` when that has completed.

        `content` is staged only if all of the queues keep messages (`all_keep`). Of queues whose
        subscription does not select it, it is on none; it may be on none at all. `along` is done
        in the same transaction; not at all if it is on none.
        """
        served, last_values = self._served, self._last_values
        names = served.selecting(queues, header)
        if not names:
            on_done(None)
            return
        try:
            annotations = wanted_time(header, wall_us)
        except InvalidRequest as refusal:
            served.calls.answer((on_done, refusal))
            return
        values = last_values.values(header, names)

        def put(replaced: Replaced) -> None:
            def done(message_id: int, error: StoreError | None) -> None:
                self._arrived(message_id, header, () if error else names)
                came = [(message_id, value) for value in values]
                last_values.end(values, replaced, came, error)
                on_done(error)

            def ready(error: StoreError | None, message: StoredMessage | None) -> None:
                if message is None:
                    done(0, error)
                else:
                    calls = [EnqueueCall(message, name, annotations) for name in names]
                    self._store(calls, replaced, along, partial(done, message.message_id))

            served.calls.puts.prepare(header, content, ready, may_stage=served.all_keep(names))

        last_values.begin(values, put)

    def _store(
        self,
        enqueued: Sequence[EnqueueCall],
        replaced: Replaced,
        along: Along | None,
        on_done: OnComplete,
    ) -> None:
        """Have the store put a message on its queues; what it replaces goes first, for its room."""
        calls = self._served.calls
        if len(enqueued) == 1 and not replaced and along is None:
            calls.make(enqueued[0], on_done)
            return
        outcome = {**OUTCOME, "by": enqueued[0].message.message_ids[0]}
        taken = [DequeueCall((older,), queue, None, outcome) for older, queue in replaced]
        calls.transact([*taken, *enqueued], on_done, along)

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

    def _arrived(self, message_id: int, header: MessageHeader, queues: Iterable[str]) -> None:
        for queue in queues:
            self._came((message_id,), queue, header)

    def _came(self, message_ids: Sequence[int], queue: str, header: MessageHeader) -> None:
        self._served.metrics.enqueued += len(message_ids)
        self._served.wait(queue, message_ids, header.priority, durable=header.durable)


def _one_done(on_done: OnDone, number: int, error: StoreError | None) -> None:
    on_done(number, (error,))
