"""`BrokerStore`: what a broker calls, in six protocols (source: QPID-2893).

Each call that changes something is a value (`sparkstore.core.state_machine.call_values`). A store
has one method for all of them, `call`; the methods here make the values.

    CallTarget      any call that changes something, as a value
    MessageStore    messages on queues, transactions, recovery
    ContentCalls    messages by themselves: how they are made, and read
    WiringCalls     queues, exchanges, bindings, and the broker's configuration
    BatchCalls      calls of many messages at once
    LinkCalls       links, and their unsettled deliveries

Code that calls a store names the narrowest of these in its types. Any thread may call a store.
After `close` every call raises `Closed`.

Every call that changes something takes an `on_complete(error | None)`. It fires once, on another
thread than the caller's, never before later calls see what was decided; a call does not wait for
it. A completion without error means that what it stands for survives a power cut, as far as its
tier promises. Completions of one store fire in the order of the calls, one at a time, outside its
locks (only those of `flush` have a thread of their own). They must be quick, and may call the store
again, but not close it. What a call decides (who acquired first, whether a queue exists) is decided
in call order and is seen by later calls at once, before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from broker_shim.completion import OnComplete, OnEachComplete, each_of
from broker_shim.durability import TerminusDurability
from broker_shim.store.reads import Content, OnLoaded
from sparkstore.core.annotations import Annotations
from sparkstore.core.fold import Entry
from sparkstore.core.link_records import LinkKey
from sparkstore.core.records import ExchangeBindingKey, MessageHeader, each_header
from sparkstore.core.state_machine.arguments import check_batch, check_new_run, check_stored_run
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    AlterCall,
    AttachCall,
    BindCall,
    ConfigureCall,
    CreateCall,
    DequeueCall,
    DestroyCall,
    DetachCall,
    EnqueueCall,
    Exchange,
    NewMessageRun,
    Queue,
    Recovered,
    ReleaseCall,
    SettleCall,
    StoreCall,
    StoredMessage,
    StoredRun,
    TransactionContext,
    UnbindCall,
    UnsettledCall,
)

__all__ = [
    "Annotations",
    "BatchCalls",
    "BrokerStore",
    "Content",
    "ContentCalls",
    "ContentWriter",
    "Entry",
    "Exchange",
    "ExchangeBindingKey",
    "LinkCalls",
    "LinkKey",
    "MessageHeader",
    "MessageStore",
    "NewMessageRun",
    "OnComplete",
    "OnEachComplete",
    "OnLoaded",
    "Queue",
    "Recovered",
    "StoredMessage",
    "StoredRun",
    "TransactionContext",
    "WiringCalls",
]


class CallTarget(Protocol):
    """A store that takes calls as values: the calls of the other protocols are made of this one."""

    def call(
        self,
        call: StoreCall,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Make a call, in its turn after all that were made before.

        Args:
            call: What is to be done.
            on_complete: Called when that is durable, or with the reason why it was not done; with
                `SomeRefused` if that is so of some messages of a run alone.
            transaction: If given, it is true from the commit on, and not before.
        """


class WiringCalls(CallTarget, Protocol):
    """A broker's calls about queues, exchanges, bindings and its configuration."""

    def create(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """Create a queue or an exchange. A call that repeats one with the same arguments succeeds.

        Completes with:
            InvalidRequest: It exists with other arguments; the name is not valid Unicode.
        """
        self.call(CreateCall(wiring), on_complete)

    def alter(self, queue: Queue, on_complete: OnComplete) -> None:
        """Give a queue other arguments; what is on it stays. A call that repeats one succeeds.

        The new arguments hold for what is enqueued from now on. The store does not ask whether they
        suit what is on the queue, or its consumers: see `sparkstore.operations.queue_alteration`.

        Completes with:
            InvalidRequest: There is no such queue; it has another durability; a queue cannot have
                such arguments.
        """
        self.call(AlterCall(queue), on_complete)

    def destroy(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """Destroy the queue or exchange of this name, with its bindings; a queue with its entries.

        Completes with:
            InvalidRequest: There is no such queue or exchange.
        """
        self.call(DestroyCall(wiring), on_complete)

    def bind(
        self, key: ExchangeBindingKey, arguments: Mapping[str, Any], on_complete: OnComplete
    ) -> None:
        """Bind a queue to an exchange. A call that repeats one with the same arguments succeeds.

        A binding lives as long as the less durable of both ends.

        Completes with:
            InvalidRequest: Unknown exchange or queue; bound with other arguments.
        """
        self.call(BindCall(key, arguments), on_complete)

    def unbind(self, key: ExchangeBindingKey, on_complete: OnComplete) -> None:
        """Remove the binding that this key identifies.

        Completes with:
            InvalidRequest: There is no such binding.
        """
        self.call(UnbindCall(key), on_complete)

    def configure(
        self, category: str, key: str, detail: Mapping[str, Any] | None, on_complete: OnComplete
    ) -> None:
        """Keep an object of the broker's configuration under a category and a key of its choice.

        It replaces what was kept there; None removes that, and changes nothing if there is none.
        The store does not look into the object, and keeps it as durably as queues.

        Completes with:
            InvalidRequest: JSON cannot hold it; category or key is not valid Unicode.
        """
        self.call(ConfigureCall(category, key, detail), on_complete)


class ContentWriter(Protocol):
    """Takes the content of one new message in pieces.

    `ContentCalls.content` makes one for each message. One thread at a time may call it.
    """

    def add(self, piece: bytes, on_complete: OnComplete) -> None:
        """Take the next piece of the content, in order; each piece is bytes of any length.

        `on_complete` fires when the piece is durable, or at once if its tier keeps no content.

        Raises:
            InvalidRequest: The content is larger than `max_message_bytes`.
            StoreError: The store takes no records now; of this piece nothing was taken.
        """

    def end(self, on_complete: OnComplete) -> StoredMessage:
        """Say that all pieces came, and get the message to enqueue.

        `on_complete` fires after those of the pieces.
        """


class ContentCalls(Protocol):
    """How a broker makes messages, before they are on a queue, and reads them while they are."""

    def message(self, header: MessageHeader, body: bytes = b"") -> StoredMessage:
        """Make a message with an id of its own; nothing is stored until it is enqueued.

        The lengths `header.header_bytes` and `header.body_bytes` are set here, to those of the
        encoded header and of `body`.

        Raises:
            InvalidRequest: A field of the header, or the body, is of a wrong type or too large.
            StoreError: The store takes no records now.
        """

    def messages(
        self, headers: Sequence[MessageHeader], bodies: Sequence[bytes]
    ) -> Sequence[StoredMessage | StoredRun]:
        """Make messages as `message` does, one at least; all of them may share one header.

        Returns:
            Runs of them, in their order.
        """
        check_new_run(NewMessageRun(headers, bodies, ""))
        made = zip(each_header(headers, len(bodies)), bodies, strict=True)
        return [self.message(header, body) for header, body in made]

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """Give the content of a new message in pieces, for content too large for one call.

        Each piece becomes durable on its own. Content that was staged and never enqueued is
        forgotten at the next start.

        Returns:
            The message to enqueue, `is_staged`.

        Completes with:
            InvalidRequest: The content is larger than `max_message_bytes`.
        """

    def content(self, message: StoredMessage) -> ContentWriter:
        """Give the content of a new message as it comes: the writer takes its pieces.

        Raises:
            InvalidRequest: The message has content already.
        """

    def load(self, message_id: int) -> StoredMessage:
        """Get a message that is on a queue, with its content; waits while storage is read.

        Raises:
            InvalidRequest: It is on no queue.
        """

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Get header and content of the messages on queues that are in memory; never waits."""

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """Get a part of the content of a message that is on a queue; b"" at its end or after it.

        It waits while storage is read. Of content that came in pieces only the pieces that are
        needed are read.

        Args:
            message_id: The message to read of; it must be on some queue.
            offset: Index of the first byte, from 0.
            length: How many bytes at most; less comes only at the end of the content.

        Raises:
            InvalidRequest: It is on no queue; offset or length is negative.
        """

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Get the headers of many messages, as `load` has them, in the order of the ids.

        It is None for a message that is on no queue. Cheapest in queue order, a thousand at a time.
        """

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        """`load` messages without waiting: in the order asked, on a thread of the store's own.

        Args:
            message_ids: The messages to load, in the order in which they are wanted.
            on_loaded: Called once for each, with what `load` would have returned or raised; with
                `Closed` if the store is closed before. It must be quick, and may call the store
                again, but not close it.
        """


class MessageStore(CallTarget, Protocol):
    """A broker's calls about messages on queues, singly or in transactions."""

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier that the store can keep, whatever a queue or a message asks for."""

    def enqueue(
        self,
        message: StoredMessage,
        queue: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        *,
        annotations: Annotations | None = None,
        delivery_count: int = 0,
    ) -> None:
        """Put a message at the end of a queue, durably if both message and queue are durable.

        Args:
            message: The message to put there; this store's `message`, `content` or `stage` made it.
            queue: Name of the queue, which must exist.
            on_complete: Called when the entry is durable, or with the reason why it is not there.
            transaction: If given, the message is on the queue from the commit on, and not before.
            annotations: What the entry adds to those of its message, on this queue only.
            delivery_count: Failed deliveries that the entry begins with.

        Completes with:
            InvalidRequest: Unknown queue; the message is on it already, or left its last queue
                (make a new message); it, or its annotations, are too large.
            Full: No room on the disk, in the log or on the queue; nothing was done.
        """
        enqueued = EnqueueCall(message, queue, annotations, delivery_count)
        self.call(enqueued, on_complete, transaction)

    def dequeue(
        self,
        message_id: int,
        queue: str,
        holder: str | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Remove a message from a queue for good. One that is available is acquired by this.

        Args:
            message_id: The message to remove; it must be on the queue.
            queue: Name of the queue that it is removed from; on others it stays.
            holder: Who takes it; None for the broker itself (expiry, purge).
            on_complete: Called when the removal is durable.
            transaction: If given, the message leaves at the commit; until then nobody else gets it.
            outcome: Why it leaves, as JSON; None for accepted; `message_history` shows it.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it.
            NotAcquired: Another holder, or another transaction, has it.
        """
        self.call(DequeueCall((message_id,), queue, holder, outcome), on_complete, transaction)

    def acquire(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Reserve a message for one holder; it stays on the queue, and nobody else gets it.

        Of two calls the first wins. If the transaction aborts, the message is available again.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it.
            NotAcquired: Somebody has acquired it, this holder or another.
        """
        self.call(AcquireCall((message_id,), queue, holder), on_complete, transaction)

    def release(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        *,
        delivery_failed: bool = False,
        annotations: Annotations | None = None,
    ) -> None:
        """Make an acquired message available again, at its old place in the queue.

        Args:
            message_id: The message to give back; it must be acquired on the queue.
            queue: Name of the queue that it is acquired on.
            holder: Who acquired it.
            on_complete: Called when the release is durable.
            transaction: If given, the message is available from the commit on, and not before.
            delivery_failed: If true, its `delivery_count` rises by one.
            annotations: All that the entry adds to those of its message from now on; None: as
                before.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it, or is not acquired; its
                annotations are too large.
            NotAcquired: Another holder, or another transaction, has it.
        """
        released = ReleaseCall((message_id,), queue, holder, delivery_failed, annotations)
        self.call(released, on_complete, transaction)

    def begin(self) -> TransactionContext:
        """Start a transaction, which ends with `commit` or `abort`."""

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Make everything that was called in the transaction true, together and durably.

        Completes with:
            InvalidRequest: It has ended; a queue it uses was destroyed; an operation in it was
                refused. Nothing of it happened: it is aborted, and its new messages are used up.
        """

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """End the transaction without effect: what it acquired or dequeued is available again."""

    def flush(self, on_complete: OnComplete) -> None:
        """Complete when what all earlier calls did is where queries see it."""

    def recover(self) -> Recovered:
        """Tell what is in the store now; right after opening, that is what survived."""

    def close(self) -> None:
        """Wait for what is under way, then let go of everything. May be called twice.

        Never from a completion: it waits for all of them.
        """


class BatchCalls(CallTarget, Protocol):
    """Calls for runs of messages, of which the single calls say what each means.

    A refusal is of one message, as of its calls one by one, and for the others it is done. But in a
    transaction the first refusal is that of all: nothing of it can be committed.
    """

    def enqueue_new(self, messages: NewMessageRun, on_complete: OnEachComplete) -> Sequence[int]:
        """`message` and `enqueue` of many for one queue, each for itself, told together.

        Args:
            messages: In their order; with header and body of each, and the queue.
            on_complete: Called once, when all entries are durable, with what came of each.

        Returns:
            The id of each message; of one that is refused it says nothing.

        Raises:
            InvalidRequest: They are no such messages, or there is none.
        """

    def enqueue_each(
        self,
        messages: StoredRun,
        queue: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
        *,
        annotations: Annotations | None = None,
        delivery_count: int = 0,
    ) -> None:
        """`enqueue` of many that are on other queues, in their order: each for itself.

        In a transaction that takes them off this queue they may be on it, too.

        Raises:
            InvalidRequest: They are no such messages, there is none, or one is there twice.
        """
        tells = _telling_each(check_stored_run(messages).message_ids, on_complete)
        self.call(EnqueueCall(messages, queue, annotations, delivery_count), tells, transaction)

    def dequeue_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_complete: OnEachComplete,
        outcome: Mapping[str, Any] | None = None,
        transaction: TransactionContext | None = None,
    ) -> None:
        """`dequeue` of many of one queue, in their order: each for itself, told together.

        Raises:
            InvalidRequest: They are no sequence, or there is none.
        """
        tells = _telling_each(message_ids, on_complete)
        self.call(DequeueCall(message_ids, queue, holder, outcome), tells, transaction)

    def acquire_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """`acquire` of many of one queue, in their order: each for itself, told together.

        Raises:
            InvalidRequest: They are no sequence, or there is none.
        """
        tells = _telling_each(message_ids, on_complete)
        self.call(AcquireCall(message_ids, queue, holder), tells, transaction)

    def release_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
        *,
        delivery_failed: bool,
        annotations: Annotations | None = None,
    ) -> None:
        """`release` of many of one queue, in their order: each for itself, told together.

        Raises:
            InvalidRequest: They are no sequence, or there is none.
        """
        tells = _telling_each(message_ids, on_complete)
        released = ReleaseCall(message_ids, queue, holder, delivery_failed, annotations)
        self.call(released, tells, transaction)


def _telling_each(message_ids: Sequence[int], on_complete: OnEachComplete) -> OnComplete:
    """Make the completion of a run's call that tells what came of each message.

    Raises:
        InvalidRequest: They are no sequence, there is none, or nobody to tell.
    """
    check_batch(message_ids, on_complete)
    return each_of(len(message_ids), on_complete)


class LinkCalls(CallTarget, Protocol):
    """A broker's calls about links and their deliveries.

    The lower of the link's durability and what the store can keep decides what survives a restart.
    From CONFIGURATION on that is its termini and that it is attached, from UNSETTLED_STATE on its
    deliveries. The rest is in this process's memory only, and `recover` tells it while the store is
    open.

    A delivery that a link sends needs no record here: an entry that the link's text has acquired
    (`sparkstore.core.link_records.link_text`) is that delivery.
    """

    def attach(self, key: LinkKey, detail: Mapping[str, Any], on_complete: OnComplete) -> None:
        """Keep that a link is attached, and its termini, which replace those kept before.

        A link that is there keeps its deliveries, unless its tier changes: then they are forgotten.

        Args:
            key: The link: the peer's container id, the link's name, and our role.
            detail: JSON: `version` 1, `source` and `target` (each an object, with an `address` for
                SQL, or None), `durability` 0 to 2 as granted, `expiry_policy`, `timeout_s`.
            on_complete: Called when that is durable.

        Completes with:
            InvalidRequest: JSON cannot hold the detail; its version, durability, source or target
                is missing or none; a name is not valid Unicode, or too long.
        """
        self.call(AttachCall(key, detail), on_complete)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Keep that a link is detached; if it is `closed`, forget it with all it remembers.

        Completes with:
            InvalidRequest: There is no such link.
        """
        self.call(DetachCall(key, closed), on_complete)

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Remember a delivery, or its new state; one that is there already is replaced.

        Args:
            key: The link that the delivery was made on; `attach` has told of it.
            tag: The delivery's tag on the link, at most 32 bytes.
            state: A JSON object (the view `deliveries` shows its `queue` and `message_id`), or None
                while it has no state.
            on_complete: Called when that is durable.
            transaction: If given, it is remembered from the commit on, together with what else is
                in it. If the link is closed before, the rest is done without it.

        Completes with:
            InvalidRequest: There is no such link; the tag is too long; JSON cannot hold the state.
        """
        self.call(UnsettledCall(key, tag, state), on_complete, transaction)

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Forget deliveries of a link by their tags; a tag that is not remembered changes nothing.

        Completes with:
            InvalidRequest: There is no such link.
        """
        self.call(SettleCall(key, tags), on_complete, transaction)


class BrokerStore(MessageStore, BatchCalls, ContentCalls, WiringCalls, LinkCalls, Protocol):
    """A broker's store: all of the above, and nothing more."""
