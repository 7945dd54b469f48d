"""`MessageStore`: what a broker calls (source: design document 004, QPID-2893; DESIGN 8, 9).

Every call that changes something takes an `on_complete(error | None)`. It fires once, on another
thread than the caller's, never before later calls see what was decided; a call does not wait for
it. A completion without error means that what it stands for survives a power cut, as far as its
tier promises. Completions of one store fire in the order of the calls, one at a time, outside its
locks (only those of `flush` have a thread of their own); they must be quick, and may call the
store again, but not close it. What a call decides (who acquired first, whether a queue exists) is
decided in call order and is seen by later calls at once, before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from sparkstore.fold import Entry
from sparkstore.records import BindingKey, MessageHeader

if TYPE_CHECKING:
    from broker_shim.store.content_writer import ContentWriter

__all__ = [
    "BindingKey",
    "Entry",
    "Exchange",
    "Message",
    "MessageHeader",
    "MessageStore",
    "OnComplete",
    "Queue",
    "Recovered",
    "TransactionContext",
]


@dataclass(frozen=True, slots=True)
class Queue:
    """Definition of a queue.

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
        name: Any text.
        type: `direct`, `fanout`, `topic`, …: the broker's word.
        durability: As for a queue.
        arguments: Anything JSON can hold.
    """

    name: str
    type: str
    durability: TerminusDurability = TerminusDurability.UNSETTLED_STATE
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Message(NamedTuple):
    """One immutable message, however many queues it is on. Made by `MessageStore.message`.

    Attributes:
        message_id: Store-wide, rising, from 1.
        header: Typed header; `header.durable` decides with the queue's durability.
        body: The content. Empty while `is_staged`: its pieces are with the store already.
        is_staged: The content was given in pieces by `stage`.
    """

    message_id: int
    header: MessageHeader
    body: bytes
    is_staged: bool = False


class TransactionContext(Protocol):
    """A local transaction: made by `begin`, ended by `commit` or `abort`, used by one thread."""

    @property
    def transaction(self) -> int:
        """Its number; the rows of the transaction carry it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was there when the store opened.

    Attributes:
        queues: Definitions.
        exchanges: Definitions.
        bindings: Keys with their arguments.
        entries: (message id, entry) by queue, in queue order; a live view, so that a million
            entries are not copied: walk through it before the first call that changes something.
            A single entry may be looked up in it at any time by who makes the calls.
        configured: Objects of the broker's configuration by category and key.
    """

    queues: list[Queue]
    exchanges: list[Exchange]
    bindings: dict[BindingKey, Mapping[str, Any]]
    entries: Mapping[str, Mapping[int, Entry]]
    configured: dict[tuple[str, str], Mapping[str, Any]]


class MessageStore(Protocol):
    """A broker's store. Any thread may call it. After `close` every call raises `Closed`."""

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier it can keep."""

    def create(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """Create a queue or an exchange; again with the same arguments succeeds.

        Completes with:
            InvalidRequest: It exists with other arguments; the name is not valid Unicode.
        """

    def destroy(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """Destroy by name: a queue with its entries, either with its bindings.

        Completes with:
            InvalidRequest: There is no such queue or exchange.
        """

    def bind(self, key: BindingKey, arguments: Mapping[str, Any], on_complete: OnComplete) -> None:
        """Bind a queue to an exchange; again with the same arguments succeeds.

        A binding lives as long as the less durable of both ends.

        Completes with:
            InvalidRequest: Unknown exchange or queue; bound with other arguments.
        """

    def unbind(self, key: BindingKey, on_complete: OnComplete) -> None:
        """Take a binding away.

        Completes with:
            InvalidRequest: There is no such binding.
        """

    def configure(
        self, category: str, key: str, detail: Mapping[str, Any] | None, on_complete: OnComplete
    ) -> None:
        """Keep an object of the broker's configuration; None removes it, if it is there.

        The store asks nothing of it. It is durable as wiring is.

        Completes with:
            InvalidRequest: JSON cannot hold it; category or key is not valid Unicode.
        """

    def message(self, header: MessageHeader, body: bytes = b"") -> Message:
        """A new message with an id of its own; nothing is stored until it is enqueued.

        `header.header_bytes` and `.body_bytes` are set here.
        """

    def stage(self, message: Message, pieces: Iterable[bytes], on_complete: OnComplete) -> Message:
        """Give the content of a new message in pieces, for content too large for one call.

        Each is durable on its own; staged and never enqueued is forgotten at the next start.

        Returns:
            The message to enqueue, `is_staged`.

        Completes with:
            InvalidRequest: The content is larger than `max_message_bytes`.
        """

    def content(self, message: Message) -> ContentWriter:
        """Give the content of a new message as it comes. Raises InvalidRequest if it has some."""

    def enqueue(
        self,
        message: Message,
        queue: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Put a message on a queue: durably if message and queue are.

        Completes with:
            InvalidRequest: Unknown queue; the message is on it already, or left its last queue
                (make a new message); larger than `max_message_bytes`.
            Unavailable: No room; nothing was done.
        """

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
            message_id: Which.
            queue: Where.
            holder: Who takes it; None for the broker itself (expiry, purge).
            on_complete: Called when it is durable.
            transaction: At commit; until then nobody else gets it.
            outcome: JSON, None for accepted; `message_history` shows it.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it.
            NotAcquired: Another holder, or another transaction, has it.
        """

    def acquire(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Reserve a message for one holder: the first wins; abort of the transaction releases.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it.
            NotAcquired: It is acquired, by whomever.
        """

    def release(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        *,
        delivery_failed: bool = False,
    ) -> None:
        """Give an acquired message back, to its old place in the queue.

        Args:
            message_id: Which.
            queue: Where.
            holder: Who has it.
            on_complete: Called when it is durable.
            transaction: At commit.
            delivery_failed: Counts in `delivery_count`.

        Completes with:
            InvalidRequest: Unknown queue; the message is not on it, or is not acquired.
            NotAcquired: Another holder, or another transaction, has it.
        """

    def begin(self) -> TransactionContext:
        """Start a transaction."""

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Make all of it true, together and durably.

        Completes with:
            InvalidRequest: It has ended; a queue it uses was destroyed; an operation in it was
                refused. Nothing of it happened: it is aborted.
        """

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Undo all of it: what it acquired or took is available again."""

    def flush(self, on_complete: OnComplete) -> None:
        """Complete when everything before it is where queries see it."""

    def recover(self) -> Recovered:
        """What is in the store now; right after opening: what survived."""

    def load(self, message_id: int) -> Message:
        """A message that is on a queue, content and all, from memory or wherever it is.

        Raises:
            InvalidRequest: It is on no queue.
        """

    def close(self) -> None:
        """Wait for what is under way, then let go of everything. May be called twice.

        Never from a completion: it waits for all of them.
        """
