"""`MessageStoreChain`: one store that is several.

What the order rests on: completions of the first store fire one at a time in the order of its
calls, and a call goes to the members from there. So each member gets the calls in the order in
which the first decided them, and the line of what is to be told is in that order, too.

Why nothing is told too early: a call stands in the line until every member that is not dropped has
completed it. The line is told from its head only. Why nothing waits for ever: a member completes
each call once (`ChainMember`), and one that is dropped completes all it owes at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from broker_shim.completion import (
    Completion,
    OnComplete,
    SomeRefused,
    all_of,
)
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, Ended, InvalidRequest, StoreError
from broker_shim.store.chain.calls import ChainMember, calls_that_make_room
from broker_shim.store.chain.chain_branches import ChainBranches, FirstStore
from broker_shim.store.chain.difference import CATEGORY
from broker_shim.store.chain.place import MemberPlace, MemberStatus, Tolerance
from broker_shim.store.chain.single_arrivals import SingleArrivals
from broker_shim.store.expiring_store import DueMessages
from broker_shim.store.interface import (
    BrokerStore,
    ContentWriter,
    MessageHeader,
    Recovered,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.reads import ReadCalls
from sparkstore.core.state_machine.arguments import check_completion
from sparkstore.core.state_machine.call_values import RecordStep, StoreCall, part_of
from sparkstore.log.completions import fire_once, ignore

_log = logging.getLogger(__name__)


class MessageStoreChain(ChainBranches, ReadCalls, SingleArrivals, BrokerStore):
    """A `BrokerStore` that calls several stores in the order of the first one.

    Reads, and what `recover` tells, are the first store's.
    """

    def __init__(self, first: FirstStore, members: Sequence[tuple[ChainMember, Tolerance]]) -> None:
        """Chain stores that are alike already (`mirror.Mirror.catch_up`).

        Args:
            first: Decides, gives messages their numbers, and is read.
            members: Are told what it accepts, each with what to do when it fails.

        Raises:
            InvalidRequest: What is no member is to be one.
        """
        for pair in members:
            if type(pair) is not tuple or len(pair) != 2 or not isinstance(pair[1], Tolerance):
                raise InvalidRequest("a chain has pairs of a member and its Tolerance")
            if not callable(getattr(pair[0], "apply", None)):
                kind = type(pair[0]).__name__
                raise InvalidRequest(f"a member of a chain cannot be {kind}: give a Mirror, say")
        self._first: FirstStore = first
        self._reads = first
        self._line = _Line()
        self._places = [
            MemberPlace(member, tolerance, self._fail, self._note_dropped)
            for member, tolerance in members
        ]
        self._failure: StoreError | None = None
        if isinstance(first, LocalMessageStore):
            first.full_queues.pass_on = self._pass_dropped
        for place in self._places:
            self._note_dropped(place.member.name, None)

    @property
    def first(self) -> FirstStore:
        """The store that decides."""
        return self._first

    def expired(self, now_us: int, count: int, after: str) -> DueMessages | None:
        """Find messages whose time to live is over in the first store.

        See `ExpiringStore.expired`.
        """
        return self._first.expired(now_us, count, after)

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier that the first store keeps."""
        return self._first.durability

    @property
    def failure(self) -> StoreError | None:
        """The error that ended the chain for good, if one did.

        A member failed that may not be dropped.
        """
        return self._failure

    @property
    def members(self) -> list[MemberStatus]:
        """The status of each member, in the order of the chain."""
        return [place.status for place in self._places]

    def call(
        self,
        call: StoreCall,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Have the first store decide a call, then each member make it true.

        Of a call within a transaction members hear at its commit. See `CallTarget.call`.
        """
        check_completion(on_complete)
        make = partial(self._first.call, call)
        if transaction is None:

            def decided(error: StoreError | None) -> None:
                done: StoreCall | None = call
                refused = error
                if isinstance(error, SomeRefused):  # members hear of the others
                    chosen = [outcome is None for outcome in error.outcomes]
                    done, error = part_of(call, chosen), None
                calls = [] if done is None else [done]
                self._decided(calls, lambda failure: on_complete(failure or refused), error)

            self._guarded(on_complete, make, decided)
            return

        def noted(error: StoreError | None) -> None:
            if error is None and isinstance(transaction, ChainTransaction):
                transaction.accepted.append(call)
            self._line.put(on_complete, error)

        self._guarded(on_complete, partial(make, transaction=self._inner(transaction)), noted)

    def message(self, header: MessageHeader, body: bytes = b"") -> StoredMessage:
        """Make a message with an id of the first store. See `ContentCalls.message`."""
        return self._first.message(header, body)

    def content(self, message: StoredMessage) -> ContentWriter:
        """Give the content of a new message to the first store, piece by piece.

        Members read it from there when the message is enqueued. See `ContentCalls.content`.
        """
        return self._first.content(message)

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """Give the content of a new message to the first store from an iterator.

        Members read it from there when the message is enqueued. See `ContentCalls.stage`.
        """
        check_completion(on_complete)
        return self._first.stage(message, pieces, partial(self._line.put, on_complete))

    def begin(self) -> TransactionContext:
        """Start a transaction in the first store.

        Members hear of it when it is committed. See `MessageStore.begin`.
        """
        return ChainTransaction(self, self._first.begin())

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Commit a transaction in the first store, then in each member.

        See `MessageStore.commit`.
        """
        check_completion(on_complete)
        accepted = self._accepted(transaction)

        def committed(error: StoreError | None) -> None:
            self._decided(accepted, on_complete, error)

        self._guarded(on_complete, partial(self._first.commit, self._inner(transaction)), committed)

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """End a transaction of the first store without effect; members never hear of it.

        See `MessageStore.abort`.
        """
        check_completion(on_complete)
        self._first.abort(self._inner(transaction), partial(self._line.put, on_complete))

    def flush(self, on_complete: OnComplete) -> None:
        """Flush the first store and all members. See `MessageStore.flush`."""
        check_completion(on_complete)

        def passed(_error: StoreError | None) -> None:
            places = [place for place in self._places if place.is_told]
            parts = [Completion() for _ in range(len(places) + 1)]
            all_of(parts).add_callback(on_complete)
            for flush, part in zip(
                (self._first.flush, *(place.member.flush for place in places)), parts, strict=True
            ):
                try:
                    flush(part.finish)
                except StoreError as error:
                    part.finish(error)

        self._after_earlier(passed)

    def recover(self) -> Recovered:
        """Tell what is in the first store, without what the chain keeps for itself.

        See `MessageStore.recover`.
        """
        recovered = self._first.recover()
        configured = {
            key: detail for key, detail in recovered.configured.items() if key[0] != CATEGORY
        }
        return replace(recovered, configured=configured)

    def close(self) -> None:
        """Close the first store and the members, after all calls have completed.

        Members may have to read from the first store until then. See `MessageStore.close`.
        """
        # First all that is due: for that a member may have to read content from the first store.
        settled = Completion()
        with suppress(Closed):
            self._after_earlier(lambda _error: self._line.put(settled.finish, None))
            settled.complete()
        self._first.close()
        for place in self._places:
            place.member.close()

    def _guarded(self, on_complete: OnComplete, make: Any, decided: OnComplete) -> None:
        """Ask the first store, unless the chain has ended: then nothing is asked any more."""
        failure = self._failure
        if failure is None:
            make(on_complete=decided)
        else:
            self._after_earlier(lambda _error: self._line.put(on_complete, failure))

    def _after_earlier(self, then: OnComplete) -> None:
        """Call this when all earlier calls of the first store have completed, on its thread."""
        self._first.abort(self._first.begin(), then)

    def _accepted(self, transaction: TransactionContext) -> list[StoreCall]:
        """Get the list of calls within a transaction, which grows until it ends."""
        return transaction.accepted if isinstance(transaction, ChainTransaction) else []

    def _inner(self, transaction: TransactionContext) -> TransactionContext:
        """Get the first store's own transaction; one of another chain is refused there."""
        if isinstance(transaction, ChainTransaction) and transaction.owner is self:
            return transaction.inner
        return transaction

    def _decided(
        self, calls: Sequence[StoreCall], on_complete: OnComplete, error: StoreError | None
    ) -> None:
        """Pass calls that the first store has completed to the members."""
        places = [place for place in self._places if place.is_told] if calls and not error else []
        told_all = self._line.add(on_complete, len(places), error)
        for place in places:
            place.apply(calls, told_all)

    def _pass_dropped(self, steps: Sequence[RecordStep]) -> None:
        """Have members drop what a full queue of the first store has dropped, or moved."""
        for calls in calls_that_make_room(steps):
            self._decided(calls, ignore, None)

    def _note_dropped(self, member: str, why: str | None) -> None:
        """Have the first store, and so SQL, say that a member was dropped; None: it is not now."""
        with suppress(StoreError):
            detail = None if why is None else {"why": why}
            self._first.configure(CATEGORY, f"dropped: {member}", detail, ignore)

    def _fail(self, member: str, error: StoreError) -> StoreError:
        """End the chain, as a member failed that may not be dropped."""
        if self._failure is None:
            _log.error("the store chain ends: its member %s failed: %s", member, error)
            self._failure = Ended(
                f"the chain's member {member} failed: {error}: start anew, and it catches up;"
                " or let it be dropped"
            )
        return self._failure


@dataclass(slots=True, eq=False)
class ChainTransaction:
    """A transaction of a chain: the first store's, and the calls accepted in it.

    See `TransactionContext`.

    Attributes:
        owner: The chain that it is of.
        inner: The first store's.
        accepted: Calls within it that the first store has accepted.
    """

    owner: object
    inner: TransactionContext
    accepted: list[StoreCall] = field(default_factory=list)

    @property
    def transaction(self) -> int:
        """The number that its rows carry in the first store."""
        return self.inner.transaction


class _WaitingCompletion:
    """A completion that waits in the line until every member has completed its calls."""

    __slots__ = ("error", "left", "on_complete")

    def __init__(self, on_complete: OnComplete, left: int, error: StoreError | None) -> None:
        self.on_complete, self.left, self.error = on_complete, left, error


class _Line:
    """Completions in the order of the calls; each is told when it, and all before it, are done.

    Any thread may call it. One at a time is told, outside the lock, by whichever thread comes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: deque[_WaitingCompletion] = deque()
        self._is_telling = False

    def put(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Add a completion that only waits for its turn."""
        self.add(on_complete, 0, error)

    def add(self, on_complete: OnComplete, left: int, error: StoreError | None) -> OnComplete:
        """Add a completion that waits for `left` calls of what is returned."""
        last = _WaitingCompletion(on_complete, left, error)
        with self._lock:
            self._told.append(last)
        if not left:
            self._tell()
        return partial(self._one_done, last)

    def _one_done(self, completion: _WaitingCompletion, error: StoreError | None) -> None:
        with self._lock:
            completion.left -= 1
            completion.error = completion.error or error
        self._tell()

    def _tell(self) -> None:
        while True:
            with self._lock:
                if self._is_telling or not self._told or self._told[0].left:
                    return
                self._is_telling = True
                head = self._told.popleft()
            fire_once(head.on_complete, head.error)
            with self._lock:
                self._is_telling = False
