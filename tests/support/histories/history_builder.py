"""Drives the oracle by small integers, so that any list of them is a valid history.

Each step does what its numbers say if the state allows it, and nothing if not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparkstore.core import fold
from sparkstore.core.link_records import attached, detached, settled, unsettled
from sparkstore.core.records import (
    ExchangeBindingKey,
    MessageHeader,
    Record,
    bound,
    committed,
    configured,
    content_staged,
    exchange_created,
    exchange_destroyed,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    prepared,
    queue_altered,
    queue_created,
    queue_destroyed,
    refused,
    rolled_back,
    staging_aborted,
    unbound,
    unconfigured,
)
from tests.support.histories.histories import (
    EPOCH_MICROS,
    EXCHANGE_NAMES,
    HOLDERS,
    ID_BLOCK,
    LINKS,
    MEMBERS,
    QUEUE_NAMES,
    TAGS,
    History,
    Row,
)

T = TypeVar("T")

Choices = tuple[int, int, int]


class HistoryBuilder:
    """Drives the oracle: each method is one thing that may happen, chosen by two numbers."""

    def __init__(self) -> None:
        self.history = History()
        self.state = fold.State()
        self._epoch = 0
        self._next_id = 1
        self._transaction = 0
        self._member: str | None = None
        self._requests: dict[str, int] = {}
        self._headers: dict[int, MessageHeader] = {}
        self.open(0, 0)
        self.create_queue(0, 0)

    def add(self, record: Record) -> None:
        """Append one record that counts, asked for by the member that is connected."""
        if self._member is not None:
            record = record._replace(member=self._member, request=self._next_request())
        row = Row(len(self.history.rows) + 1, self._epoch, record)
        fold.apply(self.state, row.position, record, row.epoch)
        self.history.rows.append(row)

    def at(self, jitter: int = 0) -> int:
        """The clock, UTC µs."""
        return EPOCH_MICROS + 1_000 * len(self.history.rows) - jitter % 5_000

    def open(self, a: int, b: int) -> None:
        """A new epoch; perhaps the old writer wrote on, unheard."""
        position, old = len(self.history.rows) + 1, self._epoch
        if old and a % 2:
            ghosts = [message_enqueued(self.at(), self._name(a), 1 + b, _header(a, b), b"ghost")]
            ghosts += [queue_created(self.at(), "ghost", "{}")] * (b % 3)
            self.history.ghosts += [
                Row(position + index, old, record) for index, record in enumerate(ghosts)
            ]
        self._epoch += 1 + b % 2
        self._member = None
        self.add(opened(self.at(), f"{self._epoch:032x}"))
        self._next_id = self.state.next_message_id
        self.reserve(0, 0)

    def reserve(self, _a: int, _b: int) -> None:
        """Reserve the next block of message ids."""
        self.add(ids_reserved(self.at(), self._next_id + ID_BLOCK))

    def connect(self, a: int, b: int) -> None:
        """From now on another member asks, or none; a few of its requests left no record.

        Some members come through a service, which writes down their incarnations.
        """
        member = [*MEMBERS, None][a % (len(MEMBERS) + 1)]
        self._member = None
        if member is not None and b % 2:
            told = '{"incarnations": ["1"]' + (f', "since_us": {self.at(b)}}}' if b % 3 else "}")
            self.add(configured(self.at(), "sparkstore.member", member, told))
        self._member = member
        if member is not None:
            gap = fold.WINDOW - 2 if b % 4 == 0 else b % 3
            self._requests[member] = self._requests.get(member, 0) + gap

    def refuse(self, _a: int, b: int) -> None:
        """A request of the member is refused."""
        if self._member is not None:
            detail = f'{{"error": "InvalidRequest", "message": "no \\"ü\\" {b}"}}'
            self.add(refused(self.at(b), self._member, 0, detail))

    def configure(self, a: int, b: int) -> None:
        """An object is put into the configuration, or replaced there."""
        category, key = EXCHANGE_NAMES[a % len(EXCHANGE_NAMES)], ["", "#", "a.*.ü"][a // 3 % 3]
        self.add(configured(self.at(), category, key, f'{{"n": {b}}}'))

    def unconfigure(self, a: int, _b: int) -> None:
        """An object of the configuration goes."""
        for key in _pick(sorted(self.state.configured), a):
            self.add(unconfigured(self.at(), *key))

    def prepare(self, a: int, b: int) -> None:
        """A branch is in doubt, perhaps one of the same xid again after it was decided."""
        key = f"{a % 3}:6162:"
        if key not in self.state.prepared:
            detail = f'{{"operations": [], "since_us": {b}}}'
            self.add(prepared(self.at(b), b"xid", key, detail))

    def decide_branch(self, a: int, b: int) -> None:
        """A branch in doubt is decided."""
        for key in _pick(sorted(self.state.prepared), a):
            make = committed if b % 2 else rolled_back
            self.add(make(self.at(b), b"xid", key))

    def attach(self, a: int, b: int) -> None:
        """A link is attached, the first time or again, perhaps with other termini."""
        durability = 1 + b % 2
        detail = f'{{"source": {{"address": "q"}}, "durability": {durability}, "n": {b % 3}}}'
        self.add(attached(self.at(), LINKS[a % len(LINKS)], detail))

    def detach(self, a: int, b: int) -> None:
        """A link is detached, now and then for good; twice is possible, too."""
        for link in _pick(sorted(self.state.links), a):
            self.add(detached(self.at(b), link, closed=b % 4 == 0))

    def unsettle(self, a: int, b: int) -> None:
        """A delivery comes, or its state changes; some in a transaction with what it brought."""
        for link in _pick(sorted(self.state.links), a):
            state = None if b % 3 == 0 else f'{{"outcome": "accepted", "message_id": {b}}}'
            number = None
            if b % 2:
                self.publish(a, 0)
                number = self._transaction
            self.add(unsettled(self.at(), link, TAGS[b % len(TAGS)], state, number))

    def settle_delivery(self, a: int, b: int) -> None:
        """A delivery is forgotten, perhaps one that nobody knows."""
        for link in _pick(sorted(self.state.links), a):
            self.add(settled(self.at(), link, TAGS[b % len(TAGS)]))

    def create_queue(self, a: int, b: int) -> None:
        """Create, or create again after it was destroyed."""
        name = self._name(a)
        if name not in self.state.queues:
            self.add(queue_created(self.at(b), name, f'{{"arguments": {{"n": {b}}}}}'))

    def alter_queue(self, a: int, b: int) -> None:
        """A queue has another definition, with what is on it."""
        for queue in self._queue(a):
            self.add(queue_altered(self.at(b), queue, f'{{"arguments": {{"altered": {b}}}}}'))

    def destroy_queue(self, a: int, _b: int) -> None:
        """Destroy a queue, its bindings first."""
        for queue in self._queue(a):
            self._unbind_all(queue=queue)
            self.add(queue_destroyed(self.at(), queue))

    def create_exchange(self, a: int, b: int) -> None:
        """Create an exchange."""
        name = EXCHANGE_NAMES[a % len(EXCHANGE_NAMES)]
        if name not in self.state.exchanges:
            self.add(exchange_created(self.at(), name, f'{{"type": "topic", "n": {b}}}'))

    def destroy_exchange(self, a: int, _b: int) -> None:
        """Destroy an exchange, its bindings first."""
        for exchange in _pick(sorted(self.state.exchanges), a):
            self._unbind_all(exchange=exchange)
            self.add(exchange_destroyed(self.at(), exchange))

    def bind(self, a: int, b: int) -> None:
        """Bind a queue."""
        for exchange in _pick(sorted(self.state.exchanges), b):
            for queue in self._queue(a):
                key = ExchangeBindingKey(exchange, queue, ["", "#", "a.*.ü"][b % 3])
                if key not in self.state.bindings:
                    self.add(bound(self.at(), key, f'{{"n": {b}}}'))

    def unbind(self, a: int, _b: int) -> None:
        """Take a binding away."""
        for key in _pick(sorted(self.state.bindings), a):
            self.add(unbound(self.at(), key))

    def publish(self, a: int, b: int) -> None:
        """A new message on one to three queues, in one transaction."""
        queues = sorted(self.state.queues)
        chosen = {queues[(a + index) % len(queues)] for index in range(1 + b % 3)} if queues else ()
        self._enqueue_new(sorted(chosen), a, b, staged=False)

    def publish_staged(self, a: int, b: int) -> None:
        """A new message whose content came in pieces before; for some it ends there."""
        self._enqueue_new(self._queue(a) if b % 4 else [], a, b, staged=True)

    def stage(self, a: int, b: int) -> None:
        """A new message whose header comes with its first piece, perhaps twice; on no queue yet."""
        message_id, header, body = self._new_message(a, b)
        for _ in range(1 + b % 2):
            self.add(content_staged(self.at(b), message_id, 0, body[:2], header))
        if body[2:]:
            self.add(content_staged(self.at(), message_id, 2, body[2:]))

    def end_staging(self, a: int, b: int) -> None:
        """A staged message goes on a queue, or nowhere."""
        for message_id in _pick(sorted(self.state.staged), a):
            header = self._headers[message_id]
            for queue in self._queue(a) if b % 3 else []:
                self.add(message_enqueued(self.at(b), queue, message_id, header, None))
            if b % 3 == 0:
                self.add(staging_aborted(self.at(), message_id))

    def enqueue_again(self, a: int, b: int) -> None:
        """A message that is on a queue goes on another, or back to one that it left."""
        for message_id in _pick(sorted(self.state.messages), a):
            for queue in self._queue(b):
                if message_id not in self.state.queues[queue].entries:
                    known, told = self._headers[message_id].known(), _annotations(a + b)
                    record = message_enqueued(self.at(b), queue, message_id, known, None)
                    self.add(record._replace(detail=told))

    def acquire(self, a: int, b: int) -> None:
        """An available message is reserved."""
        for queue, message_id in self._entry(a, acquired=False):
            holder = [*HOLDERS, LINKS[0]][b % (len(HOLDERS) + 1)]
            self.add(message_acquired(self.at(), queue, message_id, holder))

    def release(self, a: int, b: int) -> None:
        """An acquired message is given back."""
        for queue, message_id in self._entry(a, acquired=True):
            count = self.state.queues[queue].entries[message_id].delivery_count + b % 2
            told = _annotations(a + b // 2)
            self.add(message_released(self.at(), queue, message_id, count, detail=told))

    def dequeue(self, a: int, b: int) -> None:
        """A message leaves a queue, acquired or not."""
        for queue, message_id in self._entry(a, acquired=bool(b % 2)):
            outcome = '{"outcome": "rejected"}' if b % 3 == 0 else None
            self.add(message_dequeued(self.at(), queue, message_id, HOLDERS[0], outcome))

    def requeue(self, a: int, b: int) -> None:
        """An available message leaves its queue and is put there again, in one transaction."""
        for queue, message_id in self._entry(a, acquired=False):
            self._transaction += 1
            known, number = self._headers[message_id].known(), self._transaction
            outcome = '{"outcome": "requeued"}'
            self.add(message_dequeued(self.at(), queue, message_id, None, outcome, number))
            record = message_enqueued(self.at(b), queue, message_id, known, None, number)
            self.add(record._replace(detail=_annotations(a + b)))

    def _enqueue_new(self, queues: list[str], a: int, b: int, *, staged: bool) -> None:
        message_id, header, body = self._new_message(a, b)
        self._transaction += 1
        if staged:
            for offset in range(0, len(body), 2):
                piece = body[offset : offset + 2]
                self.add(content_staged(self.at(), message_id, offset, piece))
        first, inline = header, None if staged else body
        for queue in queues:
            self.add(
                message_enqueued(self.at(a), queue, message_id, first, inline, self._transaction)
            )
            first, inline = header.known(), None

    def _next_request(self) -> int:
        assert self._member is not None
        self._requests[self._member] += 1
        return self._requests[self._member]

    def _new_message(self, a: int, b: int) -> tuple[int, MessageHeader, bytes]:
        if self._next_id >= self.state.next_message_id:
            self.reserve(0, 0)
        message_id, self._next_id = self._next_id, self._next_id + 1
        body = bytes([message_id % 256]) * (b % 7)
        header = self._headers[message_id] = _header(a, b)._replace(body_bytes=len(body))
        return message_id, header, body

    def _unbind_all(self, *, queue: str | None = None, exchange: str | None = None) -> None:
        for key in sorted(self.state.bindings):
            if queue == key.queue or exchange == key.exchange:
                self.add(unbound(self.at(), key))

    def _name(self, number: int) -> str:
        return QUEUE_NAMES[number % len(QUEUE_NAMES)]

    def _queue(self, number: int) -> list[str]:
        return _pick(sorted(self.state.queues), number)

    def _entry(self, number: int, *, acquired: bool) -> list[tuple[str, int]]:
        return _pick(
            [
                (name, message_id)
                for name in sorted(self.state.queues)
                for message_id, entry in self.state.queues[name].entries.items()
                if (entry.acquired_by is not None) == acquired
            ],
            number,
        )


def _pick(choices: list[T], number: int) -> list[T]:
    return [choices[number % len(choices)]] if choices else []


def _annotations(number: int) -> str | None:
    """What an entry adds to its message: often nothing new, or that it is to be delivered later."""
    later_ms = EPOCH_MICROS // 1_000 + number * 7 % 200
    return [
        *(None, "{}", f'{{"x-opt-n":["string","{number}"]}}', None, '{"ü":["uint","1"]}'),
        f'{{"x-opt-delivery-time":["long","{later_ms}"]}}',
    ][number % 6]


def _header(a: int, b: int) -> MessageHeader:
    header = bytes(range(a % 9))
    return MessageHeader(
        "amqp-1.0" if a % 2 else "raw",
        header,
        durable=True,
        priority=a % 10,
        created_at=EPOCH_MICROS + b if b % 2 else None,
        expires_at=EPOCH_MICROS + 10_000_000 + a if a % 3 == 0 else None,
        subject="späť" if a % 4 == 0 else None,
        header_bytes=len(header),
        properties=(("carrier", "UA"), ("", "🦊"))[: b % 3],
    )


STEPS: list[Callable[[HistoryBuilder, int, int], None]] = [
    *[HistoryBuilder.publish] * 5,
    *[HistoryBuilder.acquire] * 3,
    *[HistoryBuilder.dequeue] * 3,
    *[HistoryBuilder.release] * 2,
    *[HistoryBuilder.enqueue_again] * 2,
    HistoryBuilder.publish_staged,
    HistoryBuilder.create_queue,
    HistoryBuilder.create_queue,
    HistoryBuilder.destroy_queue,
    HistoryBuilder.create_exchange,
    HistoryBuilder.destroy_exchange,
    HistoryBuilder.bind,
    HistoryBuilder.bind,
    HistoryBuilder.unbind,
    HistoryBuilder.open,
    HistoryBuilder.requeue,
    HistoryBuilder.connect,
    HistoryBuilder.connect,
    HistoryBuilder.refuse,
    HistoryBuilder.refuse,
    HistoryBuilder.configure,
    HistoryBuilder.configure,
    HistoryBuilder.unconfigure,
    *[HistoryBuilder.prepare] * 2,
    HistoryBuilder.decide_branch,
    HistoryBuilder.stage,
    HistoryBuilder.stage,
    HistoryBuilder.end_staging,
    *[HistoryBuilder.attach] * 2,
    HistoryBuilder.detach,
    *[HistoryBuilder.unsettle] * 3,
    HistoryBuilder.settle_delivery,
    *[HistoryBuilder.alter_queue] * 2,
]


def build_history(choices: list[Choices]) -> History:
    """The history that a list of numbers stands for; for tests that want one of their own."""
    builder = HistoryBuilder()
    for step, a, b in choices:
        STEPS[step](builder, a, b)
    return builder.history
