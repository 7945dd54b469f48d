"""A member of a chain that is a store itself: the same queues, the same messages, the same numbers.

It can take the first store's place: what it has completed survives as its own tiers promise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Protocol
from uuid import uuid4

from broker_shim.completion import OnComplete, wait_for
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.branch_store import BranchSteps, Xid
from broker_shim.store.chain.branches_in_doubt import MissingBranch
from broker_shim.store.chain.call_line import CallLine
from broker_shim.store.chain.chain_branches import FirstStore
from broker_shim.store.chain.difference import CATEGORY, Missing, difference
from broker_shim.store.interface import (
    BrokerStore,
    LinkKey,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.local import LocalMessageStore
from sparkstore.core.state_machine import heuristics
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    AttachCall,
    BranchCall,
    ConfigureCall,
    DecideHeuristicallyCall,
    DequeueCall,
    DetachCall,
    EnqueueCall,
    PrepareCall,
    RecordStep,
    ReleaseCall,
    SettleCall,
    StoreCall,
    UnsettledCall,
    part_of,
)
from sparkstore.core.xids import xid_text

_log = logging.getLogger(__name__)

_SELF, _FIRST = "self", "first"
_PIECE_BYTES = 1 << 20
_AT_ONCE = 256
"""Calls under way while it catches up."""
MAX_DISTANCE = 100_000


class InDoubtStore(FirstStore, Protocol):
    """A store of this process that tells what its branches in doubt hold."""

    def branch_steps(self) -> Mapping[Xid, BranchSteps]:
        """Get the steps that wait in each branch in doubt, the oldest branch first."""


class MirrorStore(InDoubtStore, Protocol):
    """A store that takes messages with the numbers that another one gave them."""

    def adopt(self, message: StoredMessage) -> bool:
        """Let a message be enqueued that another store made; False if it is here already.

        Raises:
            InvalidRequest: A value of a wrong type.
            StoreError: The store takes no records now.
        """

    def adopt_branch(self, xid: Xid, on_complete: OnComplete) -> None:
        """Have a branch in doubt, as another store has it, of which a restart left nothing."""


class Mirror:
    """A member of a chain that is a store with the same content. See `ChainMember`.

    Content that came in pieces is not in the calls: it is read from the first store, maybe from
    storage, on a thread of the mirror's own (`CallLine`).
    """

    def __init__(
        self,
        name: str,
        store: MirrorStore,
        first: InDoubtStore,
        place: Mapping[str, Any] | None = None,
    ) -> None:
        """Follow `first`; `catch_up` before the chain takes calls.

        Args:
            name: What logs, metrics and errors call it.
            store: Gets what `first` accepts; it is the mirror's from now on, which closes it.
            first: Where content is read that came in pieces.
            place: What whoever takes the first store's place must know of it.
        """
        self._name, self._store, self._first = name, store, first
        if isinstance(store, LocalMessageStore):
            store.full_queues.trust_all()
        self._place = dict(place or {})
        self._known: Mapping[str, Any] = {}  # what the first store is called
        self._gone: set[int] = set()
        self._lacks = False  # what is being applied has a message whose content is gone
        self._links: set[LinkKey] = set()
        self._staged: dict[int, StoredMessage] = {}  # by the calls that are being applied
        self._unmade: set[Xid] = set()  # branches of which nothing was left when we heard of them
        self._call_line = CallLine(f"mirror {name}")

    @property
    def name(self) -> str:
        """The name of this member in logs, metrics and errors."""
        return self._name

    def catch_up(self, max_distance: int = MAX_DISTANCE) -> int:
        """Make the mirror alike to the first store, as it is before the first call of the chain.

        Returns:
            How many calls it was behind.

        Raises:
            InvalidRequest: It follows another store, or is more than `max_distance` calls behind;
                nothing was done to its messages.
            StoreError: A store failed.
        """
        self._known = self._known_first()
        lacking, distance = self._lacking(max_distance)
        if lacking:
            _log.info("%s catches up: it is %d calls behind", self._name, distance)
        # Noted before the first call: after a kill between two of them the mirror is known as
        # behind.
        wait_for([partial(self._note, is_alike=not lacking)])
        calls = self._loaded(lacking)
        while some := list(islice(calls, _AT_ONCE)):
            wait_for(partial(self.apply, calls) for calls in some)
        # Noted when all that it lacked is durable, and not before.
        wait_for([partial(self._note, is_alike=True)])
        return distance

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """Apply calls to the mirror's store, in order, after the earlier ones.

        See `ChainMember.apply`.
        """
        may_wait = any(message.is_staged for message in _arrivals(calls))
        self._call_line.take(partial(self._apply, calls, on_complete), may_wait=may_wait)

    def flush(self, on_complete: OnComplete) -> None:
        """Flush the mirror's store after the calls before. See `ChainMember.flush`."""
        self._call_line.take(partial(self._flush, on_complete), may_wait=False)

    def drop(self) -> None:
        """Note in the mirror's store that it is not alike any more, if that still works.

        See `ChainMember.drop`.
        """
        with suppress(StoreError):
            self._note(_ignore, is_alike=False)

    def close(self) -> None:
        """End the mirror's thread, then close its store. See `ChainMember.close`."""
        # The line first: its last calls go to the store.
        self._call_line.close()
        self._store.close()

    def _lacking(self, max_distance: int) -> tuple[list[StoreCall | Missing | MissingBranch], int]:
        """List the calls that the mirror lacks, and count them.

        Raises:
            InvalidRequest: They are more than `max_distance`.
        """
        ours, theirs = self._first.recover(), self._store.recover()
        self._links = set(theirs.links)
        branches = self._first.branch_steps(), self._store.branch_steps()
        lacking, distance = [], 0
        for missing in difference(ours, theirs, *branches):
            lacking.append(missing)
            distance += len(missing.steps) + 1 if isinstance(missing, MissingBranch) else 1
            if distance > max_distance:
                message = f"{self._name} is more than {max_distance} calls behind: copy the first"
                message += " root, or allow a larger distance"
                raise InvalidRequest(message)
        return lacking, distance

    def _known_first(self) -> Mapping[str, Any]:
        """How the first store is called by those that follow it.

        Raises:
            InvalidRequest: The mirror has followed another one, or is no mirror and not empty.
        """
        known = self._first.recover().configured.get((CATEGORY, _SELF))
        if known is None:
            known = {"id": str(uuid4())}
            wait_for([partial(self._first.configure, CATEGORY, _SELF, known)])
        theirs = self._store.recover()
        followed = theirs.configured.get((CATEGORY, _FIRST))
        if followed is None and (theirs.queues or theirs.exchanges or theirs.configured):
            raise InvalidRequest(f"{self._name} is not empty, and has followed no store yet")
        if followed is not None and followed["id"] != known["id"]:
            raise InvalidRequest(f"{self._name} follows another store: give it an empty root")
        return known

    def _note(self, on_complete: OnComplete, *, is_alike: bool) -> None:
        """Keep which store the mirror follows, and whether it has all that was told there."""
        detail = {**self._known, "place": self._place, "is_alike": is_alike}
        self._store.configure(CATEGORY, _FIRST, detail, on_complete)

    def _loaded(
        self, lacking: Sequence[StoreCall | Missing | MissingBranch]
    ) -> Iterator[Sequence[StoreCall]]:
        for missing in lacking:
            if isinstance(missing, Missing):
                message = self._first.load(missing.message_id)
                yield [EnqueueCall(message, missing.queue)]
            elif isinstance(missing, MissingBranch):
                yield [*self._branch(missing), PrepareCall(missing.xid)]
            else:
                yield [missing]

    def _branch(self, branch: MissingBranch) -> Iterator[StoreCall]:
        """The calls of a branch, with the content that waits in the first store."""
        enqueued = [*_arrivals(branch.steps)]
        waiting = {message.message_id for message in enqueued if message.is_staged}
        for step in branch.steps:
            if isinstance(step, EnqueueCall) and step.message.message_ids[0] in waiting:
                yield replace(step, message=self._first.load(step.message.message_ids[0]))
            else:
                yield step

    def _apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        self._staged.clear()
        try:
            if len(calls) == 1 and isinstance(calls[0], PrepareCall):
                self._store.adopt_branch(calls[0].xid, on_complete)
                return
            self._lacks = False
            calls = [ours for call in calls if (ours := self._translated(call)) is not None]
            if self._lacks:
                on_complete = partial(self._when_followed, on_complete)
            if len(calls) == 1 and not isinstance(calls[0], PrepareCall):
                self._make(calls[0], on_complete, None)
                return
            transaction = self._store.begin()
            for call in calls:
                if not isinstance(call, PrepareCall):
                    self._make(call, _ignore, transaction)
            if calls and isinstance(calls[-1], PrepareCall):
                self._prepare(transaction, calls[-1].xid, on_complete, is_empty=len(calls) == 1)
            else:
                self._store.commit(transaction, on_complete)
        except StoreError as error:
            on_complete(error)

    def _prepare(
        self,
        transaction: TransactionContext,
        xid: Xid,
        on_complete: OnComplete,
        *,
        is_empty: bool,
    ) -> None:
        """Prepare a branch, unless all its messages have lost their content: then abort it."""
        if is_empty:
            self._unmade.add(xid)
            self._store.abort(transaction, on_complete)
        else:
            self._unmade.discard(xid)
            self._store.prepare(transaction, xid, on_complete)

    def _when_followed(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Complete calls that lack a message when what took it off its last queue is here, too.

        Told before, the message would be missing here that everybody believes to be there, until
        that comes: with the other half of a transaction, or after calls before it that nobody was
        told of. The first store has decided it, so its completion is one of those before that of a
        call which is made now; and each is passed on before the next one fires.
        """

        def passed_on(error: StoreError | None) -> None:
            if error is not None:
                on_complete(error)
            else:
                end = partial(_do_nothing, self._store, on_complete)
                self._call_line.take(end, may_wait=False)

        if error is not None:
            on_complete(error)
        else:
            _do_nothing(self._first, passed_on)

    def _flush(self, on_complete: OnComplete) -> None:
        try:
            self._store.flush(on_complete)
        except StoreError as error:
            on_complete(error)

    def _translated(self, call: StoreCall) -> StoreCall | None:
        """Translate a call for the mirror's store; None if it is about what was gone before.

        That may be a message whose content nobody has any more: it is never enqueued. Or it is a
        link that was closed before the commit, which the first store left out, too.
        """
        match call:
            case EnqueueCall(message=StoredMessage() as message):
                ours = self._taken_over(message)
                return None if ours is None else replace(call, message=ours)
            case EnqueueCall(message=run) | (AcquireCall() | ReleaseCall() | DequeueCall() as run):
                return part_of(call, [number not in self._gone for number in run.message_ids])
            case AttachCall():
                self._links.add(call.key)
            case DetachCall(closed=True):
                self._links.discard(call.key)
            case UnsettledCall() | SettleCall():
                return call if call.key in self._links else None
            case BranchCall() if call.xid in self._unmade and not isinstance(call, PrepareCall):
                return self._remembered(call)
        return call

    def _remembered(self, call: BranchCall) -> StoreCall | None:
        """Translate the decision of a branch that was not made: only an operator's is kept."""
        key = heuristics.CATEGORY, xid_text(call.xid)
        is_heuristic = isinstance(call, DecideHeuristicallyCall)
        detail = self._first.recover().configured.get(key) if is_heuristic else None
        if detail is None and is_heuristic:  # its coordinator knows by now, which we hear of next
            return None
        self._unmade.discard(call.xid)
        return None if detail is None else ConfigureCall(*key, detail)

    def _taken_over(self, message: StoredMessage) -> StoredMessage | None:
        """The message to enqueue here, content and all; None if nobody has its content any more."""
        message_id = message.message_id
        is_new = self._store.adopt(message)
        if not message.is_staged:
            return message
        if not is_new:  # as it is here: on another queue, or about to be
            return self._staged.get(message_id) or self._store.load(message_id)
        writer = self._store.content(message._replace(is_staged=False))
        at = 0
        try:
            while piece := self._first.read(message_id, at, _PIECE_BYTES):
                writer.add(piece, _ignore)
                at += len(piece)
        except InvalidRequest:  # it left its last queue while its enqueue was on its way to us
            self._gone.add(message_id)
            self._lacks = True
            return None
        self._staged[message_id] = writer.end(_ignore)
        return self._staged[message_id]

    def _make(
        self, call: StoreCall, on_complete: OnComplete, transaction: TransactionContext | None
    ) -> None:
        if isinstance(call, DecideHeuristicallyCall):
            xid, by, commits = call.xid, call.by, call.commits
            self._store.decide_heuristically(xid, by, on_complete, _skip, commits=commits)
        else:
            self._store.call(call, on_complete, transaction)


def _arrivals(calls: Sequence[StoreCall]) -> Iterator[StoredMessage]:
    """Iterate over the messages that calls enqueue with their content."""
    for call in calls:
        if isinstance(call, EnqueueCall) and isinstance(call.message, StoredMessage):
            yield call.message


def _do_nothing(store: InDoubtStore, on_complete: OnComplete) -> None:
    """Complete in turn, after all that was called before."""
    try:
        store.abort(store.begin(), on_complete)
    except StoreError as error:
        on_complete(error)


def take_place(store: BrokerStore, *, accept_loss: bool = False) -> bool:
    """Make a mirror a store of its own, before it takes calls in the first store's place.

    It follows nobody from then on: a chain that would make it like its old first store is refused.

    Returns:
        False if it was no mirror; then nothing was done.

    Raises:
        InvalidRequest: It was catching up, or was dropped, when its chain ended: acknowledged
            messages may be missing.
    """
    if place_to_take(store, accept_loss=accept_loss) is None:
        return False
    wait_for([partial(store.configure, CATEGORY, _FIRST, None)])
    _log.warning("this root was a mirror of another one; it is a store of its own from now on")
    return True


def place_to_take(store: BrokerStore, *, accept_loss: bool = False) -> Mapping[str, Any] | None:
    """Tell what a mirror knows of the store that it would replace; None if it is no mirror.

    Raises:
        InvalidRequest: Its chain ended before it had everything.
    """
    followed = store.recover().configured.get((CATEGORY, _FIRST))
    if followed is None:
        return None
    if not (followed["is_alike"] or accept_loss):
        raise InvalidRequest(
            "this root mirrors another one, and was behind when that ended: serve the other, or"
            " accept the loss of what it lacks (--accept-loss)"
        )
    place: Mapping[str, Any] = followed.get("place", {})
    return place


def _ignore(_error: StoreError | None) -> None:
    """Ignore an outcome: what matters is told by the call that follows."""


def _skip(_steps: Sequence[RecordStep]) -> None:
    """Ignore the steps of a decision, as a mirror has no broker to tell."""
