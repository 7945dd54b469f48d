"""Values that calls of a store take and return, and the steps that they come to.

`broker_shim.store.interface` has the calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard

from sparkstore.core.annotations import Annotations
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import Entry, QueueState
from sparkstore.core.link_records import LinkKey
from sparkstore.core.records import (
    ENTRY_KINDS,
    ExchangeBindingKey,
    MessageHeader,
    Record,
    Run,
    each_header,
    run_of,
)
from sparkstore.core.xids import Xid
from sparkstore.errors import InvalidRequest, StoreError


@dataclass(frozen=True, slots=True)
class Queue:
    """Definition of a queue, which its name identifies.

    Attributes:
        name: Any text: it never becomes a path or SQL.
        durability: What of it survives a restart, at most what the store can keep.
        arguments: Anything JSON can hold; two definitions with other arguments are different.
    """

    name: str
    durability: TerminusDurability = TerminusDurability.UNSETTLED_STATE
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Definition of an exchange; the store keeps it, the broker routes by it.

    Attributes:
        name: Any text: it never becomes a path or SQL.
        type: `direct`, `fanout`, `topic`, …: the broker's word.
        durability: What of it survives a restart, at most what the store can keep.
        arguments: Anything JSON can hold; the store does not look into it.
    """

    name: str
    type: str
    durability: TerminusDurability = TerminusDurability.UNSETTLED_STATE
    arguments: Mapping[str, Any] = field(default_factory=dict)


class StoredMessage(NamedTuple):
    """One immutable message, however many queues it is on. Made by `ContentCalls.message`.

    Attributes:
        message_id: Its number in the store, from 1; later messages have larger ones.
        header: The typed header; whether an entry is durable is decided by `header.durable` and
            the queue's durability together.
        body: The content. Empty while `is_staged`: its pieces are with the store already.
        is_staged: The content was given in pieces by `stage`.
    """

    message_id: int
    header: MessageHeader
    body: bytes
    is_staged: bool = False

    @property
    def message_ids(self) -> Sequence[int]:
        """The message itself, as the only one of its run."""
        return (self.message_id,)

    @property
    def headers(self) -> Sequence[MessageHeader]:
        """The header of the one message."""
        return (self.header,)

    def singles(self) -> Sequence[StoredMessage]:
        """The message itself, as the only one of its run."""
        return (self,)

    def parts(self) -> Sequence[StoredMessage]:
        """The message itself, as the only one of its run."""
        return (self,)


class StoredRun(NamedTuple):
    """Messages that have their ids: of which the store has the content already, or new ones.

    Attributes:
        message_ids: In their order, none twice.
        headers: One for each message, or one that all of them share; of these an entry has its
            priority, its expiry and its size.
        bodies: Of new messages, made by `ContentCalls.messages`: the whole content of each. Of
            those that are on some queue of the store nothing.
    """

    message_ids: Sequence[int]
    headers: Sequence[MessageHeader]
    bodies: Sequence[bytes] = ()

    def singles(self) -> Iterator[StoredMessage]:
        """Iterate over the messages, each with its content if they are new."""
        count = len(self.message_ids)
        headers, bodies = each_header(self.headers, count), self.bodies or [b""] * count
        for message_id, header, body in zip(self.message_ids, headers, bodies, strict=True):
            yield StoredMessage(message_id, header, body)

    def parts(self) -> Iterator[StoredRun | StoredMessage]:
        """Iterate over the messages, each as a run of one."""
        for message in self.singles():
            is_new = bool(self.bodies)
            yield message if is_new else StoredRun((message.message_id,), (message.header,))


class NewMessageRun(NamedTuple):
    """A run of messages to be made and put on a queue, in their order.

    Attributes:
        headers: One for each message, or one that all of them share. Their lengths are set to those
            of `header` and of the body.
        bodies: All of the content of each; one message at least.
        queue: Name of the queue.
    """

    headers: Sequence[MessageHeader]
    bodies: Sequence[bytes]
    queue: str

    def singles(self) -> Iterator[NewMessageRun]:
        """Iterate over the messages, each as a run of one."""
        headers = each_header(self.headers, len(self.bodies))
        for header, body in zip(headers, self.bodies, strict=True):
            yield NewMessageRun((header,), (body,), self.queue)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a store when it opened.

    Attributes:
        queues: Definition of each queue.
        exchanges: Definition of each exchange.
        bindings: The arguments of each binding, by its key.
        entries: (message id, entry) by queue, in queue order; a live view, so that a million
            entries are not copied: walk through it before the first call that changes something.
            A single entry may be looked up in it at any time by who makes the calls.
        configured: Objects of the broker's configuration by category and key.
        links: What `attach` was told last of each link; who recovers detaches all of them.
        unsettled: Deliveries that a link remembers, and their states, by its key and their tag;
            a link with none is not here.
    """

    queues: list[Queue]
    exchanges: list[Exchange]
    bindings: dict[ExchangeBindingKey, Mapping[str, Any]]
    entries: Mapping[str, Mapping[int, Entry]]
    configured: dict[tuple[str, str], Mapping[str, Any]]
    links: dict[LinkKey, Mapping[str, Any]]
    unsettled: dict[LinkKey, Mapping[bytes, Mapping[str, Any] | None]]


class TransactionContext(Protocol):
    """A local transaction: `begin` makes it, `commit` or `abort` ends it.

    One thread at a time may use it, and only with the store that made it.
    """

    @property
    def transaction(self) -> int:
        """The number that the rows of the transaction carry."""


class RecordStep(NamedTuple):
    """A run of records that a call makes true; most are of one record.

    Attributes:
        run: The records that `apply` folds into the state.
        is_kept: It goes to the log; else it is true in memory only.
        message: In `enqueued`: whose content it is.
        identity: In `enqueued`: what its sender calls it, on a queue that detects duplicates.
        value: In `enqueued`: the value of the key, on a last-value queue with a limit.
    """

    run: Run
    is_kept: bool
    message: StoredMessage | None = None
    identity: Hashable | None = None
    value: str | None = None

    @property
    def record(self) -> Record:
        """The first of the records; nearly always it is the only one."""
        return self.run.record


def singles_of(steps: Iterable[RecordStep]) -> Iterator[RecordStep]:
    """Iterate over steps of one record each, which these stand for."""
    for step in steps:
        if step.run.rows == 1:
            yield step
        else:
            yield from (step._replace(run=record) for record in step.run.singles())


def joined(steps: Sequence[RecordStep]) -> Iterator[RecordStep]:
    """Join neighbours of one record each: but for message, time and request they are alike.

    What a queue must know of a message (`identity`, `value`) has it stay by itself.
    """
    at = 0
    while at < len(steps):
        first, end = steps[at], at + 1
        record = first.record
        is_single = first.run.rows == 1 and record.kind in ENTRY_KINDS and _is_plain(first)
        while is_single and end < len(steps) and steps[end].run.rows == 1:
            later = steps[end].record
            both = record.message is not None and later.message is not None
            same = record._replace(
                message_id=(record.message_id or 0) + end - at,
                at=later.at,
                request=None if record.request is None else record.request + end - at,
                message=later.message if both else record.message,
                body=later.body if both else record.body,
            )
            is_alike = later == same and (later.body is None) is (record.body is None)
            if not is_alike or steps[end].is_kept != first.is_kept or not _is_plain(steps[end]):
                break
            end += 1
        if end == at + 1:
            yield first
        elif record.message is None:
            yield first._replace(run=run_of(record, end - at))
        else:
            headers = [step.record.message for step in steps[at:end]]
            shared = headers[:1] if all(header is headers[0] for header in headers) else headers
            contents = [step.record.body for step in steps[at:end]]
            bare = record._replace(message=None, body=None)
            yield RecordStep(run_of(bare, end - at, shared, contents), first.is_kept)  # type: ignore[arg-type]  # each has a header
        at = end


def _is_plain(step: RecordStep) -> bool:
    """True if a step brings no message, or one that its queue must know nothing else of."""
    return step.message is None or (step.is_kept and step.identity is None and step.value is None)


class StoreCall:
    """A call of a store that changes something, as a value; its fields are the arguments.

    Whatever decides, sends, copies or writes down calls takes these. `broker_shim.store.interface`
    says what each of them means, and makes them. Whoever makes one changes its lists and dicts no
    more: members of a chain apply it later, on a thread of their own.

    Attributes:
        operation: The name of the store's method.
    """

    __slots__ = ()
    operation: ClassVar[str]
    __match_args__: ClassVar[tuple[str, ...]]

    def by_name(self) -> dict[str, Any]:
        """Get the arguments by name."""
        return {name: getattr(self, name) for name in self.__match_args__}


@dataclass(frozen=True, slots=True)
class CreateCall(StoreCall):
    """A queue or an exchange is made."""

    operation = "create"
    wiring: Queue | Exchange


@dataclass(frozen=True, slots=True)
class AlterCall(StoreCall):
    """A queue gets other arguments."""

    operation = "alter"
    queue: Queue


@dataclass(frozen=True, slots=True)
class DestroyCall(StoreCall):
    """A queue or an exchange goes, with its bindings."""

    operation = "destroy"
    wiring: Queue | Exchange


@dataclass(frozen=True, slots=True)
class BindCall(StoreCall):
    """A queue is bound to an exchange."""

    operation = "bind"
    key: ExchangeBindingKey
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnbindCall(StoreCall):
    """A binding of a queue to an exchange goes."""

    operation = "unbind"
    key: ExchangeBindingKey


WIRING_CALLS = (CreateCall, AlterCall, DestroyCall, BindCall, UnbindCall)


@dataclass(frozen=True, slots=True)
class ConfigureCall(StoreCall):
    """An object of the configuration is kept; None: it goes."""

    operation = "configure"
    category: str
    key: str
    detail: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EnqueueCall(StoreCall):
    """Messages come on a queue. In a transaction it is known at the commit who brings content."""

    operation = "enqueue"
    message: StoredMessage | StoredRun
    queue: str
    annotations: Annotations | None = None
    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class DequeueCall(StoreCall):
    """Messages leave a queue for good, in their order."""

    operation = "dequeue"
    message_ids: Sequence[int]
    queue: str
    holder: str | None
    outcome: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AcquireCall(StoreCall):
    """Messages are reserved for a holder, in their order."""

    operation = "acquire"
    message_ids: Sequence[int]
    queue: str
    holder: str


@dataclass(frozen=True, slots=True)
class ReleaseCall(StoreCall):
    """Messages are available again, in their order."""

    operation = "release"
    message_ids: Sequence[int]
    queue: str
    holder: str
    delivery_failed: bool
    annotations: Annotations | None = None


@dataclass(frozen=True, slots=True)
class AttachCall(StoreCall):
    """A link is attached."""

    operation = "attach"
    key: LinkKey
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DetachCall(StoreCall):
    """A link is detached, or closed."""

    operation = "detach"
    key: LinkKey
    closed: bool


@dataclass(frozen=True, slots=True)
class UnsettledCall(StoreCall):
    """A link remembers a delivery."""

    operation = "unsettled"
    key: LinkKey
    tag: bytes
    state: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SettleCall(StoreCall):
    """A link forgets deliveries."""

    operation = "settle"
    key: LinkKey
    tags: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class BranchCall(StoreCall):
    """A call about a branch, which its coordinator named."""

    xid: Xid


class PrepareCall(BranchCall):
    """The calls before it are a branch in doubt from now on."""

    __slots__ = ()
    operation = "prepare"


class CommitPreparedCall(BranchCall):
    """A branch in doubt becomes true."""

    __slots__ = ()
    operation = "commit_prepared"


class RollbackPreparedCall(BranchCall):
    """A branch in doubt ends without effect."""

    __slots__ = ()
    operation = "rollback_prepared"


class ForgetBranchCall(BranchCall):
    """The coordinator knows what an operator decided of a branch."""

    __slots__ = ()
    operation = "forget_branch"


@dataclass(frozen=True, slots=True)
class DecideHeuristicallyCall(BranchCall):
    """An operator decides a branch in doubt."""

    operation = "decide_heuristically"
    by: str
    commits: bool


@dataclass(slots=True, eq=False)
class Transaction:
    """A local transaction (`TransactionContext`).

    Attributes:
        transaction: The number of the transaction, which its records share.
        owner: The state machine that it belongs to.
        steps: In call order; neighbours of which a call says the same are a run.
        claims: Entries by (queue, message id) that nobody else gets until the end, and who holds
            each as the transaction sees it.
        taken: The claimed entries that it dequeues.
        given_back: Delivery count and `detail` of the claimed entries that it released.
        queues: Those it uses, as they were: one that was destroyed and created anew is another.
        is_open: False after commit or abort.
        refusal: Of the first operation in it that was refused; then it cannot be committed.
    """

    transaction: int
    owner: object
    steps: list[EnqueueCall | Run] = field(default_factory=list)
    claims: dict[tuple[str, int], str | None] = field(default_factory=dict)
    taken: set[tuple[str, int]] = field(default_factory=set)
    given_back: dict[tuple[str, int], tuple[int, str | None]] = field(default_factory=dict)
    queues: dict[str, QueueState] = field(default_factory=dict)
    is_open: bool = True
    refusal: StoreError | None = None

    def check_open(self) -> None:
        """Raises InvalidRequest if it has ended."""
        if not self.is_open:
            message = f"transaction {self.transaction} has ended: begin another"
            raise InvalidRequest(message)


def is_stored(call: StoreCall) -> TypeGuard[EnqueueCall]:
    """True if a call puts messages on a queue whose content the store has."""
    return isinstance(call, EnqueueCall) and isinstance(call.message, StoredRun)


EntryCall = DequeueCall | AcquireCall | ReleaseCall
"""About messages that are on a queue: each of a run is decided for itself."""


def part_of(call: StoreCall, chosen: Sequence[bool]) -> StoreCall | None:
    """Return a call for some of the messages of its run; None if that is none of them."""
    if not any(chosen):
        return None
    if isinstance(call, EntryCall):
        return replace(call, message_ids=[*compress(call.message_ids, chosen)])
    assert isinstance(call, EnqueueCall)
    if not isinstance(call.message, StoredRun):
        return call
    ids, headers, bodies = call.message
    some = headers if len(headers) == 1 else [*compress(headers, chosen)]
    run = StoredRun([*compress(ids, chosen)], some, [*compress(bodies, chosen)])
    return replace(call, message=run)


def single_steps(steps: Iterable[EnqueueCall | Run]) -> Iterator[EnqueueCall | Record]:
    """Iterate over what waits in a transaction as steps of one message each."""
    for planned in steps:
        if isinstance(planned, EnqueueCall):
            yield from (replace(planned, message=message) for message in planned.message.parts())
        else:
            yield from planned.singles()


def arrivals_in(steps: Iterable[EnqueueCall | Run]) -> Iterator[tuple[str, StoredMessage]]:
    """Iterate over the messages that a transaction enqueues: each after its queue."""
    for planned in steps:
        if isinstance(planned, EnqueueCall):
            yield from ((planned.queue, message) for message in planned.message.singles())


def number_of(transaction: Transaction | None) -> int | None:
    """Find the number that a transaction's records carry; None for a single call."""
    return None if transaction is None else transaction.transaction
