"""A batch is the same as its calls one by one: outcomes, order, state and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.store.interface import (
    MessageHeader,
    NewMessageRun,
    Queue,
)
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import MemorySink
from sparkstore.core.fold import State
from sparkstore.core.records import Record, Run
from sparkstore.core.state_machine.state_machine import StoreStateMachine
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
        machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 7)
        super().__init__(machine, self.sink, _MOST_BYTES)


class _Single(UnbatchedCalls, _Store):
    """Decides each call of a batch by itself, by the rules of single calls."""

    def acquire(self, *asked: Any, on_complete: OnComplete) -> None:
        self._decide(on_complete, self._machine.acquire, *asked)

    def dequeue(
        self, *asked: Any, on_complete: OnComplete, outcome: Mapping[str, Any] | None = None
    ) -> None:
        self._decide(on_complete, self._machine.dequeue, *asked, outcome)

    def release(self, *asked: Any, on_complete: OnComplete, **options: Any) -> None:
        self._decide(on_complete, partial(self._machine.release, **options), *asked)


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


def _nobody(_error: StoreError | None) -> None:
    """Nobody waits."""
