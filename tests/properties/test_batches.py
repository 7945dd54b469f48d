"""A batch is the same as its calls one by one: outcomes, order, state and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker_shim.completion import OnComplete, OnEachComplete, SomeRefused
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.store.interface import (
    MessageHeader,
    NewMessageRun,
    Queue,
    StoredRun,
    TransactionContext,
)
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import MemorySink
from sparkstore.core.fold import State
from sparkstore.core.records import Record, Run
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid
from tests.support.stores.stores import done
from tests.support.stores.unbatched_calls import UnbatchedCalls

_MOST_BYTES = 3


class _Recording(MemorySink):
    """Remembers records, and refuses them while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.is_full = False

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        if self.is_full:
            raise Unavailable("full")
        for run in runs:
            self.records += run.singles()
        return super().append(runs, on_complete)


class _Store(LocalMessageStore):
    """Keeps all, in a list."""

    def __init__(self) -> None:
        self.sink = _Recording()
        tier = TerminusDurability.UNSETTLED_STATE
        self.machine = StoreStateMachine(State(), tier, lambda: 7)
        super().__init__(self.machine, self.sink, _MOST_BYTES)


class _Single(UnbatchedCalls, _Store):
    """Decides each call of a batch by itself, by the rules of single calls."""

    def acquire(
        self, *asked: Any, on_complete: OnComplete, transaction: TransactionContext | None = None
    ) -> None:
        self._decide(on_complete, self._machine.acquire, *asked, transaction=transaction)

    def dequeue(
        self,
        *asked: Any,
        on_complete: OnComplete,
        outcome: Mapping[str, Any] | None = None,
        transaction: TransactionContext | None = None,
    ) -> None:
        asked = *asked, outcome
        self._decide(on_complete, self._machine.dequeue, *asked, transaction=transaction)

    def release(
        self,
        *asked: Any,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        **options: Any,
    ) -> None:
        release = partial(self._machine.release, **options)
        self._decide(on_complete, release, *asked, transaction=transaction)

    def enqueue_each(
        self,
        messages: StoredRun,
        queue: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
        **terms: Any,
    ) -> None:
        """Put each message as one that its caller has: its header, and what it has in memory."""
        outcomes: list[StoreError | None] = []
        for message in messages.singles():
            known = self._machine.volatile.get(message.message_id, message)
            header = known.header._replace(expires_at=message.header.expires_at)
            whole = known._replace(header=header)
            self.call(EnqueueCall(whole, queue, **terms), outcomes.append, transaction)
        done(self.flush)
        on_complete(outcomes)


_queues = st.sampled_from(["kept", "short", "transient", "unknown", 5])
_headers = st.tuples(
    st.sampled_from(["raw", "raw", None, "\ud800"]),
    st.sampled_from([None, b"h"]),
    st.booleans(),
    st.sampled_from([0, 4, 9, 10, "4"]),
).map(lambda said: MessageHeader(*said))
_bodies = st.sampled_from([b"", b"a", b"a", b"abcd", "text"])
_plain = st.just((MessageHeader(), b"a"))
_news = st.one_of(
    st.lists(st.one_of(st.tuples(_headers, _bodies), _plain), min_size=1, max_size=4).map(
        lambda messages: [*zip(*messages, strict=True)]
    ),
    st.tuples(_headers.map(lambda header: (header,)), st.lists(_bodies, min_size=1, max_size=4)),
)
_ids = st.lists(st.one_of(st.integers(0, 12), st.sampled_from(["1", True, 1 << 70])), min_size=1)
_holders = st.sampled_from(["me", "you", None, "\ud800"])
_outcomes = st.sampled_from([None, {"outcome": "expired"}])
_batches = st.one_of(
    st.tuples(
        st.just("enqueue_new"),
        st.builds(lambda new, queue: NewMessageRun(*new, queue), _news, _queues),
    ),
    st.tuples(st.just("acquire_each"), _ids, _queues, _holders),
    st.tuples(st.just("dequeue_each"), _ids, _queues, _holders, _outcomes),
    st.tuples(st.just("release_each"), _ids, _queues, _holders, st.booleans()),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("full"), st.booleans()),
)


def _ready(store: _Store) -> _Store:
    kept, transient = TerminusDurability.UNSETTLED_STATE, TerminusDurability.NONE
    done(store.create, Queue("kept", kept))
    done(store.create, Queue("short", kept, {"message_ttl_ms": 5}))
    done(store.create, Queue("transient", transient))
    done(store.enqueue, store.message(MessageHeader(), b"a"), "kept")  # ids are reserved by now
    return store


def _outcomes_of(store: _Store, name: str, arguments: Sequence[Any]) -> list[str]:
    """What came of each call of a batch, and the ids that it gave out."""
    told: list[list[StoreError | None]] = []
    if name == "dequeue_each":
        *first, outcome = arguments
        call = partial(store.dequeue_each, *first, told.append, outcome)
    elif name == "release_each":
        *first, failed = arguments
        call = partial(store.release_each, *first, told.append, delivery_failed=failed)
    else:
        call = partial(getattr(store, name), *arguments, told.append)
    ids = call() or ()
    done(store.flush)  # completions fire in the order of the calls
    assert len(told) == 1
    shown = [type(each).__name__ for each in told[0]]
    return shown + [str(i) for i, each in zip(ids, told[0], strict=False) if each is None]


def _state(store: _Store) -> dict[str, Any]:
    return {name: [*entries.items()] for name, entries in store.recover().entries.items()}


@settings(max_examples=100, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(_batches, max_size=12))
def test_a_batch_is_the_same_as_its_calls_one_by_one(batches: list[tuple[Any, ...]]) -> None:
    together, single = _ready(_Store()), _ready(_Single())
    try:
        for name, *arguments in batches:
            if name == "full":
                together.sink.is_full = single.sink.is_full = arguments[0]
            elif name == "claim":  # a transaction has it: nobody else gets it from now on
                for store in (together, single):
                    LocalMessageStore.dequeue(
                        store, arguments[0], "kept", "me", _nobody, store.begin()
                    )
            else:
                told = _outcomes_of(together, name, arguments)
                assert told == _outcomes_of(single, name, arguments)
            assert _state(together) == _state(single)
        assert together.sink.records == single.sink.records
    finally:
        together.close()
        single.close()


_SENT = MessageHeader()
_places = st.sampled_from(["kept"] * 8 + ["short", "transient", "other", "unknown"])
_targets = st.sampled_from(["other"] * 8 + ["kept", "kept", "short", "transient", "unknown"])
_holding = st.sampled_from(["me", "me", "me", "you"])
_first, _count = st.integers(1, 9), st.integers(1, 4)
_its_ids = st.one_of(
    st.builds(lambda first, count: [*range(first, first + count)], _first, _count),
    st.builds(lambda first, count: [*range(first, first - count, -1)], _first, _count),
    st.builds(lambda first, count: [*range(first, first + 2 * count, 2)], _first, _count),
    st.lists(st.integers(0, 14), min_size=1, max_size=5),
)
_more = st.sampled_from([{}, {"annotations": {"x-opt-why": ("uint", "1")}}, {"delivery_count": 2}])
_new_ones = st.tuples(
    st.sampled_from([_SENT, _SENT, MessageHeader(durable=False)]),
    st.lists(st.sampled_from([b"", b"new"]), min_size=1, max_size=4),
)
_in_transactions = st.one_of(
    st.tuples(st.just("move"), _its_ids, _places, _targets, _more),
    st.tuples(st.just("put"), _its_ids, _targets, _more),
    st.tuples(st.just("bring"), _new_ones, st.lists(_targets, min_size=1, max_size=2)),
    st.tuples(st.just("acquire"), _its_ids, _places, _holding),
    st.tuples(st.just("dequeue"), _its_ids, _places, st.sampled_from([None, "me"]), _outcomes),
    st.tuples(st.just("work"), _its_ids, _holding, st.booleans(), st.booleans()),
    st.tuples(st.just("release"), _its_ids, _places, _holding, st.booleans()),
)
_ends = st.sampled_from(["commit", "commit", "commit", "abort", "prepare", "prepare and roll back"])


class _Tester:
    """One of two stores that get the same calls, with runs, or one by one."""

    def __init__(self, store: Any) -> None:
        self.store, self.is_single = _ready(store), isinstance(store, _Single)
        done(store.create, Queue("other"))
        for queue, count in (("kept", 9), ("transient", 2), ("short", 2)):
            store.enqueue_new(NewMessageRun((_SENT,), (b"a",) * count, queue), [].append)
        self.open = [store.begin(), store.begin(), None]

    def call(self, which: int, name: str, *arguments: Any) -> str:
        """Make calls in a transaction, or in none; each returns what came of its messages."""
        came: str = getattr(self, name)(self.open[which], *arguments)
        return came

    def move(
        self, within: Any, ids: list[int], queue: str, target: str, terms: dict[str, Any]
    ) -> str:
        """Take messages off a queue, and put them on another."""
        off = self.dequeue(within, ids, queue, None, {"outcome": "moved"})
        return off + self.put(within, ids, target, terms)

    def work(
        self, within: Any, ids: list[int], holder: str, is_first_done: bool, is_rest_done: bool
    ) -> str:
        """Acquire messages, and settle both halves of them."""
        came, half = self.acquire(within, ids, "kept", holder), len(ids) // 2
        for part, is_done in ((ids[:half], is_first_done), (ids[half:], is_rest_done)):
            if part and is_done:
                came += self.dequeue(within, part, "kept", holder, None)
            elif part:
                came += self.release(within, part, "kept", holder, failed=True)
        return came

    def put(self, within: Any, ids: list[int], queue: str, terms: dict[str, Any]) -> str:
        """Put messages of the store on a queue."""
        # Failures are counted after the whole run, so of these there are no neighbours.
        alone = sorted({*ids}, reverse=True) if "delivery_count" in terms else ids
        run = StoredRun([*dict.fromkeys(alone)], [_SENT])
        put = partial(self.store.enqueue_each, **terms)
        return self._outcomes(within, put, run, queue)

    def bring(self, within: Any, sent: tuple[MessageHeader, list[bytes]], queues: list[str]) -> str:
        """Make new messages, and put them on one queue after the other."""
        header, bodies = sent
        runs: Any = [self.store.message(header, body) for body in bodies if self.is_single]
        runs = runs or self.store.messages((header,), bodies)
        outcomes: list[StoreError | None] = []
        for queue in queues:
            for run in runs:
                self.store.call(EnqueueCall(run, queue), outcomes.append, within)
        done(self.store.flush)
        return _shown(outcomes)

    def acquire(self, within: Any, *asked: Any) -> str:
        """Reserve messages."""
        return self._outcomes(within, self.store.acquire_each, *asked)

    def dequeue(self, within: Any, ids: list[int], queue: str, holder: Any, outcome: Any) -> str:
        """Remove messages."""
        remove = partial(self.store.dequeue_each, outcome=outcome)
        return self._outcomes(within, remove, ids, queue, holder)

    def release(self, within: Any, ids: list[int], queue: str, holder: str, failed: bool) -> str:
        """Give messages back."""
        give_back = partial(self.store.release_each, delivery_failed=failed)
        return self._outcomes(within, give_back, ids, queue, holder)

    def _outcomes(self, within: Any, call: Any, *asked: Any) -> str:
        outcomes: list[StoreError | None] = []
        call(*asked, outcomes.extend, transaction=within)
        done(self.store.flush)
        return _shown(outcomes, is_each=within is None)

    def end(self, which: int, how: str) -> str:
        """End a transaction, and begin another in its place; what came of it."""
        within, self.open[which] = self.open[which], self.store.begin()
        outcomes: list[StoreError | None] = []
        if not how.startswith("prepare"):
            getattr(self.store, how)(within, outcomes.append)
        else:
            xid = Xid(1, b"g", b"b")
            self.store.prepare(within, xid, outcomes.append)
            done(self.store.flush)
            if outcomes == [None]:
                is_commit = how == "prepare"
                decide = self.store.commit_prepared if is_commit else self.store.rollback_prepared
                decide(xid, outcomes.append)
        done(self.store.flush)
        return _shown(outcomes, is_each=True)

    def seen(self) -> tuple[Any, ...]:
        """Everything that a run must leave as its single calls do."""
        machine = self.store.machine
        claims = {key: claimant.transaction for key, claimant in machine.claims.items()}
        volatile, known = {*machine.volatile}, {*machine.state.messages}
        return (
            _state(self.store),
            claims,
            volatile,
            known,
            {*machine.fresh},
            self.store.sink.records,
        )


@settings(max_examples=100, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.one_of(_in_transactions, _in_transactions, _ends)),
        max_size=14,
    ),
    st.tuples(_ends, _ends),
)
def test_runs_in_a_transaction_are_the_same_as_their_calls_one_by_one(
    calls: list[tuple[int, Any]], ends: tuple[str, str]
) -> None:
    """Two transactions are open at once; calls outside of them come between."""
    testers = _Tester(_Store()), _Tester(_Single())
    try:
        for which, call in [*calls, *enumerate(ends)]:
            if isinstance(call, str):
                together, single = (tester.end(min(which, 1), call) for tester in testers)
            else:
                together, single = (tester.call(which, *call) for tester in testers)
            assert together == single, call
            assert testers[0].seen() == testers[1].seen(), call
    finally:
        for tester in testers:
            tester.store.close()


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        _Store().acquire_each([], "q", "me", lambda _outcomes: None)


def test_a_batch_is_told_once_when_its_last_record_is_durable() -> None:
    store = _ready(_Store())
    told: list[Sequence[StoreError | None]] = []
    headers = [MessageHeader(), MessageHeader(None), MessageHeader()]
    ids = store.enqueue_new(NewMessageRun(headers, [b"a"] * 3, "kept"), told.append)
    done(store.flush)
    assert [type(each) for each in told[0]] == [type(None), InvalidRequest, type(None)]
    assert [*store.recover().entries["kept"]] == [1, ids[0], ids[2]]
    store.close()


def _shown(outcomes: list[StoreError | None], *, is_each: bool = False) -> str:
    """Show each outcome; in a transaction the first refusal, which spoils all of it."""
    refused = [outcome for whole in outcomes for outcome in _parts_of(whole) if outcome]
    return " ".join(type(outcome).__name__ for outcome in (outcomes if is_each else refused[:1]))


def _parts_of(outcome: StoreError | None) -> Sequence[StoreError | None]:
    """Get what came of each message that a completion tells of together."""
    return outcome.outcomes if isinstance(outcome, SomeRefused) else [outcome]


def _nobody(_error: StoreError | None) -> None:
    """Nobody waits."""
