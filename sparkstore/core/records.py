"""The record kinds: one record is one fact about a store. Pure: no clock, no thread, no Spark.

A record is a row of the journal before the log gives it its position, segment and epoch.
There is one `Record` type for all kinds, because a row is what every layer moves
(WAL, journal, history, views); the functions below build each kind, and are named for the fact.

Decision: an `enqueued` record brings the message with it (header and body) the first time a
message is put on a queue, and only names it after that. Rejected: a separate `message`
record. Nearly every message is on one queue, so one record instead of two halves the rows that
are logged, folded and compacted. Content that comes in pieces is `content` records, and the
`enqueued` record that ends it brings the header with no body. Invariant: the content of a
message is written once, so `message_id` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, cast


class Kind(IntEnum):
    """The kind of a record. The number is stored in the WAL, the lower-case name in Delta."""

    OPENED = 1
    IDS_RESERVED = 2
    CREATED = 3
    DESTROYED = 4
    BOUND = 5
    UNBOUND = 6
    CONTENT = 7
    ENQUEUED = 8
    DEQUEUED = 9
    ACQUIRED = 10
    RELEASED = 11
    CONFIGURED = 12
    UNCONFIGURED = 13
    REFUSED = 14
    STAGING_ABORTED = 15
    ATTACHED = 16
    DETACHED = 17
    UNSETTLED = 18
    SETTLED = 19
    ALTERED = 20
    PREPARED = 21
    COMMITTED = 22
    ROLLED_BACK = 23

    @property
    def column(self) -> str:
        """The kind as the tables spell it."""
        return self.name.lower()


ENTRY_KINDS = (Kind.ENQUEUED, Kind.DEQUEUED, Kind.ACQUIRED, Kind.RELEASED)
"""Kinds that change one queue entry."""


class MessageHeader(NamedTuple):
    """The header of a message: as its protocol encodes it, and the columns that SQL sees.

    Attributes:
        protocol: How `header` is encoded, for example `amqp-1.0`; `raw` if there is no such
            encoding. None only in the header of a message that the journal already holds
            (`known`), so a row that names a protocol is the one that brings the message.
        header: The protocol's own encoding of all that is not body.
        durable: True for a persistent message.
        priority: 0 to 9, AMQP's default is 4.
        created_at: UTC µs; None if the sender gave none.
        expires_at: UTC µs; None if it never expires.
        header_bytes: Length of `header`.
        body_bytes: Length of the whole body, however many pieces it came in.
        properties: Application properties in the sender's order, values as text.
    """

    protocol: str | None = "raw"
    header: bytes | None = None
    durable: bool = True
    priority: int = 4
    created_at: int | None = None
    expires_at: int | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    to: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    message_type: str | None = None
    amqp_message_id: str | None = None
    group_id: str | None = None
    header_bytes: int = 0
    body_bytes: int = 0
    properties: tuple[tuple[str, str], ...] = ()

    def known(self) -> MessageHeader:
        """Return the part of a header that every entry needs: also on a message's second queue."""
        return MessageHeader(
            None,
            durable=self.durable,
            priority=self.priority,
            expires_at=self.expires_at,
            header_bytes=self.header_bytes,
            body_bytes=self.body_bytes,
        )


class Record(NamedTuple):
    """A record: one fact. Fields that a kind does not use are None.

    Attributes:
        kind: What it says.
        at: When the store took it, UTC µs.
        queue: Name of the queue, any text.
        message_id: Store-wide id of the message that the record is about.
        holder: Who acquired it (`acquired`), who took it (`dequeued`); a link (`link_records`).
        delivery_count: Failed deliveries so far, after a `released`.
        transaction: Groups the records that became true together.
        message: Header, in `enqueued` (`known()` of it after the first queue); in the first piece
            of `content`, if the message shall be readable before it is enqueued.
        body: Content, or one piece of it (`content`).
        body_offset: Index in bytes of this piece (`content`).
        exchange: Name, in wiring records; category, in `configured` and `unconfigured`.
        binding_key: Pattern, in `bound` and `unbound`; key, in `configured` and `unconfigured`;
            delivery tag, in `unsettled` and `settled`.
        detail: JSON: definition of a queue, exchange or binding; a configured object; outcome of
            a settlement; why a request was refused; in `enqueued` and `released`, what the entry
            adds to its message's annotations from now on (`annotations`), None: nothing new.
        member: Which broker instance asked. In the last record of a request, with
            `request`: so the highest number a member has in the journal is the last one decided.
        request: Its request number; of one member, they only rise.
        xid: Branch of a distributed (XA) transaction, in `prepared`, `committed` and `rolled_back`;
            their `binding_key` is the same as text (`branches`).
    """

    kind: Kind
    at: int
    queue: str | None = None
    message_id: int | None = None
    holder: str | None = None
    delivery_count: int | None = None
    transaction: int | None = None
    message: MessageHeader | None = None
    body: bytes | None = None
    body_offset: int | None = None
    exchange: str | None = None
    binding_key: str | None = None
    detail: str | None = None
    member: str | None = None
    request: int | None = None
    xid: bytes | None = None

    @property
    def record(self) -> Record:
        """The record itself: it is a run of one."""
        return self

    @property
    def rows(self) -> int:
        """The number of positions that it takes."""
        return 1

    @property
    def message_ids(self) -> Sequence[int]:
        """The one message that it is about."""
        return (self.message_id or 0,)

    @property
    def headers(self) -> Sequence[MessageHeader | None]:
        """Its header, if it brings one."""
        return (self.message,)

    @property
    def messages(self) -> Sequence[MessageHeader]:
        """Its header, as a run has them."""
        return () if self.message is None else (self.message,)

    @property
    def bodies(self) -> Sequence[bytes]:
        """Its content, as a run has them."""
        return () if self.body is None else (self.body,)

    def singles(self) -> Sequence[Record]:
        """The record itself, as the only one of its run."""
        return (self,)


class RecordRun(NamedTuple):
    """Two records or more that differ in message, request number, header and content alone.

    Their message ids rise by one, and so do their request numbers. What a run means is what its
    records mean one by one (`singles`), in their order: each has its own position and its own row.

    Attributes:
        record: The first of them, without header and content.
        rows: How many there are: so many positions they take.
        messages: Headers of `enqueued`: one for each message, or one that all of them share.
        contents: Of `enqueued`: one for each message; each is None where the log has it already.
    """

    record: Record
    rows: int
    messages: Sequence[MessageHeader] = ()
    contents: Sequence[bytes | None] = ()

    @property
    def bodies(self) -> Sequence[bytes]:
        """The content of each message, if the run brings it."""
        are_there = bool(self.contents) and self.contents[0] is not None
        return cast("Sequence[bytes]", self.contents) if are_there else ()

    @property
    def message_ids(self) -> range:
        """The messages that it is about, in order."""
        first = self.record.message_id or 0
        return range(first, first + self.rows)

    @property
    def headers(self) -> Sequence[MessageHeader]:
        """The header of each message."""
        return each_header(self.messages, self.rows)

    def singles(self) -> Iterator[Record]:
        """Iterate over the records that the run stands for, in the order of their positions."""
        nothing = [None] * self.rows
        contents = zip(self.headers or nothing, self.contents or nothing, strict=True)
        request = self.record.request
        for index, (message_id, (header, body)) in enumerate(
            zip(self.message_ids, contents, strict=True)
        ):
            number = None if request is None else request + index
            yield self.record._replace(
                message_id=message_id, message=header, body=body, request=number
            )

    def before_last(self) -> tuple[Run, Record]:
        """Part the run into all records but the last, and that one."""
        messages = self.messages if len(self.messages) < 2 else self.messages[:-1]
        before = run_of(self.record, self.rows - 1, messages, self.contents[:-1])
        end, request = self.rows - 1, self.record.request
        last = self.record._replace(
            message_id=self.message_ids[-1],
            request=None if request is None else request + end,
            message=self.messages[-1] if self.messages else None,
            body=self.contents[-1] if self.contents else None,
        )
        return before, last


Run = Record | RecordRun
"""Facts of one kind about messages whose ids follow each other; most are about one."""


def run_of(
    record: Record,
    rows: int,
    messages: Sequence[MessageHeader] = (),
    contents: Sequence[bytes | None] = (),
) -> Run:
    """Make a run as `RecordRun` has it; one of one is the record itself."""
    if rows > 1:
        return RecordRun(record, rows, messages, contents)
    return record._replace(message=messages[0], body=contents[0]) if contents else record


def each_header(headers: Sequence[MessageHeader], count: int) -> Sequence[MessageHeader]:
    """Return the header of each of so many messages, which may share one."""
    return headers if len(headers) != 1 else [*headers] * count


def rows_of(runs: Iterable[Run]) -> int:
    """Count the positions that runs take."""
    return sum([run.rows for run in runs])


class ExchangeBindingKey(NamedTuple):
    """Identity of a binding."""

    exchange: str
    queue: str
    binding_key: str


def opened(at: int, writer: str) -> Record:
    """Make the record of a writer that opened the root.

    The row's epoch is its turn, `detail` its UUID.
    """
    return Record(Kind.OPENED, at, detail=writer)


def ids_reserved(at: int, below: int) -> Record:
    """Message ids less than `below` may have been handed out."""
    return Record(Kind.IDS_RESERVED, at, message_id=below)


def queue_created(at: int, queue: str, detail: str) -> Record:
    """Make the record of a queue that was created."""
    return Record(Kind.CREATED, at, queue, detail=detail)


def queue_altered(at: int, queue: str, detail: str) -> Record:
    """Make the record of a queue with another definition from now on; what is on it stays."""
    return Record(Kind.ALTERED, at, queue, detail=detail)


def queue_destroyed(at: int, queue: str) -> Record:
    """Make the record of a queue that was destroyed, with every entry on it."""
    return Record(Kind.DESTROYED, at, queue)


def exchange_created(at: int, exchange: str, detail: str) -> Record:
    """Make the record of an exchange that was created."""
    return Record(Kind.CREATED, at, exchange=exchange, detail=detail)


def exchange_destroyed(at: int, exchange: str) -> Record:
    """Make the record of a destroyed exchange.

    Its bindings were unbound by records of their own before.
    """
    return Record(Kind.DESTROYED, at, exchange=exchange)


def bound(at: int, key: ExchangeBindingKey, detail: str) -> Record:
    """Make the record of a queue that was bound to an exchange."""
    return Record(
        Kind.BOUND,
        at,
        key.queue,
        exchange=key.exchange,
        binding_key=key.binding_key,
        detail=detail,
    )


def unbound(at: int, key: ExchangeBindingKey) -> Record:
    """Make the record of a binding that was removed."""
    return Record(Kind.UNBOUND, at, key.queue, exchange=key.exchange, binding_key=key.binding_key)


def configured(at: int, category: str, key: str, detail: str) -> Record:
    """Make the record of an object of a broker's configuration that is new, or was replaced."""
    return Record(Kind.CONFIGURED, at, exchange=category, binding_key=key, detail=detail)


def unconfigured(at: int, category: str, key: str) -> Record:
    """Make the record of an object of a broker's configuration that was removed."""
    return Record(Kind.UNCONFIGURED, at, exchange=category, binding_key=key)


def prepared(at: int, xid: bytes, key: str, detail: str) -> Record:
    """Make the record of a prepared branch: it will be committed or rolled back for sure."""
    return Record(Kind.PREPARED, at, binding_key=key, detail=detail, xid=xid)


def committed(at: int, xid: bytes, key: str) -> Record:
    """Make the record of a prepared branch that the records before this one committed."""
    return Record(Kind.COMMITTED, at, binding_key=key, xid=xid)


def rolled_back(at: int, xid: bytes, key: str) -> Record:
    """Make the record of a prepared branch that the records before this one rolled back."""
    return Record(Kind.ROLLED_BACK, at, binding_key=key, xid=xid)


def refused(at: int, member: str, request: int, detail: str) -> Record:
    """Make the record of a refused request; `detail` is `{"error": ..., "message": ...}`."""
    return Record(Kind.REFUSED, at, detail=detail, member=member, request=request)


def content_staged(
    at: int,
    message_id: int,
    body_offset: int,
    body: bytes,
    message: MessageHeader | None = None,
    transaction: int | None = None,
) -> Record:
    """Make the record of one piece of a large message's content, which is on no queue yet.

    If the first piece brings the header, the message is *staged*: the state remembers it, also over
    a restart, until it is enqueued or its staging is aborted.

    The same piece may be there twice, with the same bytes: a client of the store service that does
    not know whether it arrived sends it again. Who reads content takes each offset once.
    """
    return Record(
        Kind.CONTENT,
        at,
        message_id=message_id,
        transaction=transaction,
        message=message,
        body=body,
        body_offset=body_offset,
    )


def staging_aborted(at: int, message_id: int) -> Record:
    """Make the record of a message that was staged with its header and will not be enqueued."""
    return Record(Kind.STAGING_ABORTED, at, message_id=message_id)


def message_enqueued(
    at: int,
    queue: str,
    message_id: int,
    message: MessageHeader,
    body: bytes | None,
    transaction: int | None = None,
    asked: tuple[str | None, int | None] = (None, None),
    detail: str | None = None,
) -> Record:
    """Make the record of a message put on a queue.

    Its first queue: whole header, and body unless staged.
    """
    fields = (at, queue, message_id, None, None, transaction, message, body, None, None, None)
    return Record(Kind.ENQUEUED, *fields, detail, *asked)


def message_dequeued(
    at: int,
    queue: str,
    message_id: int,
    holder: str | None,
    outcome: str | None = None,
    transaction: int | None = None,
) -> Record:
    """Make the record of a message that left a queue for good; `outcome` None: it was accepted."""
    return Record(Kind.DEQUEUED, at, queue, message_id, holder, None, transaction, detail=outcome)


def message_acquired(
    at: int, queue: str, message_id: int, holder: str, transaction: int | None = None
) -> Record:
    """Make the record of a message on a queue that was reserved for one holder."""
    return Record(Kind.ACQUIRED, at, queue, message_id, holder, None, transaction)


def message_released(
    at: int,
    queue: str,
    message_id: int,
    delivery_count: int,
    transaction: int | None = None,
    detail: str | None = None,
) -> Record:
    """Make the record of a message given back; `delivery_count` is the count from now on."""
    fields = (at, queue, message_id, None, delivery_count, transaction)
    return Record(Kind.RELEASED, *fields, detail=detail)
