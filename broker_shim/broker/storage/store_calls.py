"""The store as the loop sees it: every answer comes back on the loop's thread, counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from broker_shim.broker.storage.contents import StoreContents
from broker_shim.broker.storage.header_reader import HeaderReader, OnRead, ReadHeaders
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.store_puts import Along, Puts
from broker_shim.completion import (
    OnComplete,
    OnEachComplete,
    SomeRefused,
    each_of,
    nobody,
    refusal_of,
)
from broker_shim.errors import ENDED, FATAL, InvalidRequest, StoreError
from broker_shim.messages.hold import Messages
from broker_shim.store.branch_store import (
    BranchDirectory,
    BranchFacts,
    BranchStore,
    OnBranches,
    Xid,
)
from broker_shim.store.interface import (
    BrokerStore,
    Entry,
    MessageHeader,
    NewMessageRun,
)
from sparkstore.core.entries import Entries
from sparkstore.core.records import Run
from sparkstore.core.state_machine.call_values import (
    EntryCall,
    ForgetBranchCall,
    RecordStep,
    StoreCall,
)
from sparkstore.core.state_machine.room import LastValue

_NO_BRANCHES = "this broker's store has no branches in doubt: stop it, and run the command again"
Outcomes = Sequence[StoreError | None]

_Finished = tuple[OnComplete, StoreError | None]


class StoreCalls:
    """Calls of a store, made on the loop's thread; `on_done` is called there too.

    An error that ends the store is given to `on_fatal` and to nobody else. Whether what was under
    way is done is known after the next start, so no client may be told that it was refused.

    Attributes:
        puts: Gives new messages to the store.
        contents: What the messages that are taken up contain.
        messages: Those that somebody has taken up.
        on_fatal: Told of each error that ends the store, or comes after its end.
        open_count: Calls and loads that have not completed.
    """

    def __init__(
        self,
        store: BrokerStore,
        inbox: Inbox,
        on_fatal: Callable[[StoreError], None],
        entries: Mapping[str, Mapping[int, Entry]] | None = None,
    ) -> None:
        """Begin with no call under way.

        Args:
            store: The store that is called.
            inbox: Brings its answers onto the loop.
            on_fatal: Told of each error that ends the store.
            entries: What is on queues, as it is now; the store's own by default.
        """
        self._store = store
        self._inbox = inbox
        self.on_fatal = on_fatal
        self._entries = store.recover().entries if entries is None else entries
        self._headers = HeaderReader(store.headers)
        self.open_count = 0
        self.puts = Puts(store, self)
        self.contents = StoreContents(store, inbox, self)
        self.messages = Messages(lambda call: inbox.post(_make, call))

    def watch_dropped(
        self,
        took: Callable[[Run], None],
        last_value: LastValue,
    ) -> None:
        """Tell, on the loop, of each record that takes a message off a full queue to make room.

        Of a store in this process, for calls of its own; what members do their observer is told.

        Args:
            took: Gets the records.
            last_value: Tells the store what a message would replace, on any thread; see
                `LastValueQueues.last_value`.
        """
        queues = getattr(getattr(self._store, "first", self._store), "full_queues", None)

        def dropped(steps: Sequence[RecordStep]) -> None:
            for step in steps:
                took(step.run)

        if queues is not None:
            queues.on_dropped = partial(self._inbox.post, dropped)
            queues.replace_by(last_value)

    def entries(self, queue: str) -> Mapping[int, Entry]:
        """The store's entries of a queue now, by message id."""
        return self._entries.get(queue, {})

    def entry(self, queue: str, message_id: int) -> Entry | None:
        """The store's entry of a message on a queue; None if it is not there."""
        return self.entries(queue).get(message_id)

    def entry_ids(self, queue: str) -> Iterator[Sequence[int]]:
        """Iterate over the ids of what is on a queue now, in the queue's order, part by part."""
        entries = self.entries(queue)
        return entries.parts() if isinstance(entries, Entries) else iter([[*entries]])

    def bytes_and_oldest(self, queue: str) -> tuple[int, int | None]:
        """Bytes of what is on a queue, and when the first of it came: UTC µs, None if it is empty.

        Of a store in this process; its entries are counted as they come and go.
        """
        entries = self._entries.get(queue)
        if not isinstance(entries, Entries) or (oldest := entries.oldest()) is None:
            return 0, None
        return entries.message_bytes, oldest.at

    def message_ids(self, queue: str) -> Collection[int]:
        """The ids on a queue now, in its order, also of messages that have not arrived yet."""
        return self._entries.get(queue, {}).keys()

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Headers of messages, without their content; None for one that is on no queue.

        Raises:
            Unavailable: Not now; try again.
            CorruptData: Never, as they are.
            StoreError: The store has ended, and `on_fatal` was called.
        """
        try:
            return self._store.headers(message_ids)
        except ENDED as error:
            self.on_fatal(error)
            raise

    def header(self, message_id: int) -> MessageHeader:
        """Get the header of one message; raises as `headers`, and InvalidRequest if it is gone."""
        header = self.headers([message_id])[0]
        if header is None:
            text = f"message {message_id} is on no queue"
            raise InvalidRequest(text)
        return header

    def read_headers(self, message_ids: Sequence[int], on_read: OnRead) -> None:
        """Get headers without waiting; None for a message that can never be read."""

        def answered(error: StoreError | None, headers: ReadHeaders) -> None:
            self._inbox.post(self._finished, (lambda _error: on_read(error, headers), error))

        self.open_count += 1
        self._headers.ask(message_ids, answered)

    @property
    def branches(self) -> BranchStore | None:
        """The two-phase calls of a store in this process; None if it has none for a broker."""
        store: Any = self._store
        return store if hasattr(store, "branch_entries") else None

    @property
    def directory(self) -> BranchDirectory | None:
        """The directory of branches, wherever the store is; None if it has none for a broker."""
        store: Any = self._store
        return store if hasattr(store, "find_branches") else None

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Find branches in the store, and answer on the loop's thread.

        See `BranchDirectory.find_branches`.
        """
        store: Any = self._store
        branches_found: list[BranchFacts] = []

        def ask(on_complete: OnComplete) -> None:
            def answered(error: StoreError | None, branches: Sequence[BranchFacts]) -> None:
                branches_found.extend(branches)
                on_complete(error)

            store.find_branches(xid, answered)

        self.call(lambda error: on_found(error, branches_found), ask)

    def transact(
        self,
        calls: Iterable[StoreCall],
        on_done: OnComplete,
        along: Along | None = None,
        end: Callable[..., None] | None = None,
    ) -> None:
        """Make all of some calls, or none; `on_done` gets the first refusal.

        Args:
            calls: One that cannot be made now raises its StoreError: then nothing is done.
            on_done: Called when all of it is durable.
            along: Does something beside in the transaction.
            end: Ends the transaction in another way than by the store's `commit`.
        """
        refusals: list[StoreError] = []

        def note(error: StoreError | None) -> None:
            if error is not None:
                refusals.append(error)

        def done(error: StoreError | None) -> None:
            on_done(error and (refusals[0] if refusals else error))

        transaction = None
        try:
            transaction = self._store.begin()
            for call in calls:
                self._store.call(call, note, transaction)
            if along is not None:
                along(transaction)
        except StoreError as error:
            if transaction is not None:  # content could not be loaded: nobody else would end it
                with suppress(StoreError):
                    self._store.abort(transaction, nobody)
            self.answer((on_done, error))
            return
        self.call(done, end or self._store.commit, transaction)

    def enqueue_new(
        self, messages: NewMessageRun, on_done: Callable[[Sequence[int], Outcomes], None]
    ) -> None:
        """Put new messages on their queue; `on_done` gets their ids, too.

        See `BatchCalls.enqueue_new`.
        """
        ids: Sequence[int] = ()
        count = len(messages.bodies)

        def enqueue(on_complete: OnComplete) -> None:
            nonlocal ids
            ids = self._store.enqueue_new(
                messages, lambda outcomes: on_complete(refusal_of(outcomes))
            )

        self.call(each_of(count, lambda outcomes: on_done(ids, outcomes)), enqueue, weight=count)

    def make_each(self, call: EntryCall, on_done: OnEachComplete) -> None:
        """Make a call about a run of messages; `on_done` gets what came of each."""
        count = len(call.message_ids)
        self.make(call, each_of(count, on_done), count)

    def make(self, call: StoreCall, on_done: OnComplete, weight: int = 1) -> None:
        """Make a call of the store (`broker_shim.store.interface`); see `completion`."""
        self.call(on_done, self._store.call, call, weight=weight)

    def decide_branch(
        self,
        xid: Xid,
        by: str,
        on_steps: Callable[[Sequence[RecordStep]], None],
        on_done: OnComplete,
        *,
        commits: bool,
    ) -> None:
        """Decide a branch in doubt for an operator. See `BranchStore.decide_heuristically`."""
        taken: list[RecordStep] = []

        def done(error: StoreError | None) -> None:
            if error is None:
                on_steps(taken)
            on_done(error)

        if (store := self.branches) is not None:
            decide = store.decide_heuristically
            self.call(done, decide, xid, by, on_steps=taken.extend, commits=commits)
        else:
            self.answer((done, InvalidRequest(_NO_BRANCHES)))

    def forget_branch(self, xid: Xid, on_done: OnComplete) -> None:
        """Forget a branch whose decision its coordinator knows. See `BranchCalls.forget_branch`."""
        if self.branches is not None:
            self.make(ForgetBranchCall(xid), on_done)
        else:
            self.answer((on_done, InvalidRequest(_NO_BRANCHES)))

    def flush(self, on_done: OnComplete) -> None:
        """Complete when all earlier calls are where queries see them. See `MessageStore.flush`."""
        self.call(on_done, self._store.flush)

    def probe(self) -> None:
        """Ask for nothing, so that a store that has ended says so also when nobody calls it."""
        try:
            self.call(nobody, self._store.abort, self._store.begin())
        except StoreError as error:
            self.answer((nobody, error))

    def call(
        self,
        on_done: OnComplete,
        method: Callable[..., object],
        *args: Any,
        weight: int = 1,
        **named: Any,
    ) -> None:
        """Call a method of the store with a completion; see `completion`."""
        complete = self.completion(on_done, weight)
        self.open_count += 1
        try:
            method(*args, on_complete=complete, **named)
        except StoreError as error:  # Closed is the only one that is raised
            complete(error)

    def completion(self, on_done: OnComplete, weight: int = 1) -> OnComplete:
        """Wrap `on_done` for the store, so that it is called on the loop's thread; count it.

        `weight` is how many answers it brings, as of `Inbox.post`.
        """
        post, finished = self._inbox.post, self._finished
        return lambda error: post(finished, (on_done, error), weight)

    def answer(self, answer: _Finished) -> None:
        """Call back on the next turn of the loop, as if the store had completed."""
        self.open_count += 1
        self._inbox.post(self._finished, answer)

    def _finished(self, answer: _Finished) -> None:
        on_done, error = answer
        self.open_count -= 1
        if error is not None:
            errors = error.outcomes if isinstance(error, SomeRefused) else (error,)
            fatal = next((error for error in errors if isinstance(error, FATAL)), None)
            if fatal is not None:
                self.on_fatal(fatal)
            if any(isinstance(error, ENDED) for error in errors):
                return
        on_done(error)


def _make(call: Callable[[], None]) -> None:
    call()
