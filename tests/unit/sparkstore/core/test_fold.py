from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given

from sparkstore.core import fold, records
from sparkstore.core.fold import Entry, MemberState, State
from sparkstore.core.records import ExchangeBindingKey, Kind, MessageHeader, Record
from tests.support.histories.strategies import History, fold_rows, histories

HEADER = MessageHeader(priority=7, expires_at=99, header_bytes=3, body_bytes=4)
KEY = ExchangeBindingKey("e", "q", "k")


def folded(*given_records: Record, start: State | None = None) -> State:
    """The fold of records on top of `start`."""
    state = start or State()
    for position, record in enumerate(given_records, state.position + 1):
        fold.apply(state, position, record, epoch=5)
    return state


@pytest.fixture
def wired() -> State:
    """Two queues, an exchange, a binding; message 1 on `q` and `r`, message 2 on `q`."""
    return folded(
        records.queue_created(1, "q", '{"n": 1}'),
        records.queue_created(1, "r", "{}"),
        records.exchange_created(1, "e", '{"m": 1}'),
        records.bound(1, KEY, '{"b": 1}'),
        records.message_enqueued(10, "q", 1, HEADER, b"body"),
        records.message_enqueued(11, "r", 1, HEADER.known(), None),
        records.message_enqueued(12, "q", 2, HEADER, b"body"),
    )


PAIRS = [
    (records.queue_created(1, "new", "{}"), records.queue_destroyed(2, "new")),
    (records.exchange_created(1, "new", "{}"), records.exchange_destroyed(2, "new")),
    (
        records.bound(1, ExchangeBindingKey("e", "r", ""), "{}"),
        records.unbound(2, ExchangeBindingKey("e", "r", "")),
    ),
    (records.configured(1, "link", "a", "{}"), records.unconfigured(2, "link", "a")),
    (records.prepared(1, b"x", "0:78:", "{}"), records.rolled_back(2, b"x", "0:78:")),
    (
        records.message_enqueued(1, "r", 3, HEADER, b"x"),
        records.message_dequeued(2, "r", 3, "c"),
    ),
    (
        records.message_acquired(1, "q", 1, "c"),
        records.message_released(2, "q", 1, 0),
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[first.kind.column for first, _ in PAIRS])
def test_the_second_of_a_pair_undoes_the_first(wired: State, pair: tuple[Record, Record]) -> None:
    before = deepcopy(wired)
    folded(pair[0], start=wired)
    wired.position = before.position
    assert wired != before
    folded(pair[1], start=wired)
    wired.position = before.position
    assert wired == before


def test_the_state_knows_the_last_position_the_epoch_and_the_next_message_id() -> None:
    state = folded(records.opened(1, "w"), records.ids_reserved(2, 101))
    assert (state.position, state.epoch, state.next_message_id) == (2, 5, 101)


def test_an_entry_says_where_it_is_and_what_the_broker_needs(wired: State) -> None:
    assert wired.queues["q"].entries[1] == Entry(5, 10, 7, 99, 7)
    assert wired.queues["r"].entries[1] == Entry(6, 11, 7, 99, 7)


def test_a_message_lives_until_it_left_its_last_queue(wired: State) -> None:
    assert wired.messages == {1: 2, 2: 1}
    folded(records.message_dequeued(20, "q", 1, None), start=wired)
    assert wired.messages == {1: 1, 2: 1}
    folded(records.message_dequeued(21, "r", 1, None), start=wired)
    assert wired.messages == {2: 1}


def test_a_destroyed_queue_takes_its_entries_with_it(wired: State) -> None:
    folded(records.unbound(20, KEY), records.queue_destroyed(21, "q"), start=wired)
    assert [*wired.queues] == ["r"]
    assert wired.messages == {1: 1}


def test_released_gives_the_entry_back_in_its_old_place_with_its_count(wired: State) -> None:
    folded(records.message_acquired(20, "q", 1, "c"), start=wired)
    assert wired.queues["q"].entries[1].acquired_by == "c"
    folded(records.message_released(21, "q", 1, 3), start=wired)
    assert wired.queues["q"].entries[1] == Entry(5, 10, 7, 99, 7, None, 3)
    assert [*wired.queues["q"].entries] == [1, 2]


def test_content_changes_nothing_but_the_position(wired: State) -> None:
    before = deepcopy(wired)
    folded(records.content_staged(20, 9, 0, b"piece"), start=wired)
    wired.position -= 1
    assert wired == before


def test_an_object_configured_again_is_replaced() -> None:
    state = folded(*(records.configured(1, "link", key, f'{{"n": {key}}}') for key in "121"))
    folded(records.configured(1, "link", "1", '{"n": 9}'), start=state)
    assert state.configured == {("link", "1"): '{"n": 9}', ("link", "2"): '{"n": 2}'}
    assert state.exchanges == {}


def asked(record: Record, member: str, request: int | None) -> Record:
    return record._replace(member=member, request=request)


def test_the_last_record_of_a_request_says_that_it_is_decided(wired: State) -> None:
    first = records.message_acquired(1, "q", 1, "c")
    folded(asked(first, "a", None), start=wired)
    assert wired.members == {}, "not the last record of its request"
    folded(asked(records.message_released(1, "q", 1, 0), "a", 7), start=wired)
    folded(asked(records.message_acquired(1, "q", 1, "c"), "b", 3), start=wired)
    assert wired.members == {"a": MemberState(7), "b": MemberState(3)}


def test_a_refusal_is_decided_too_and_its_reason_is_kept() -> None:
    state = folded(records.refused(1, "a", 4, '{"error": "NotAcquired"}'))
    assert state.members == {"a": MemberState(4, {4: '{"error": "NotAcquired"}'})}


def test_refusals_are_forgotten_once_a_member_is_a_window_further() -> None:
    state = folded(*(records.refused(1, "a", request, "{}") for request in (1, 2, 5)))
    fold.decided(state, "a", fold.WINDOW + 1)
    assert [*state.members["a"].refusals] == [2, 5]
    fold.decided(state, "a", 3)
    assert state.members["a"].last_request == fold.WINDOW + 1, "it only rises"
    fold.decided(state, "b", 10 * fold.WINDOW)
    assert [*state.members["a"].refusals] == [2, 5], "each member has a window of its own"
    folded(records.refused(1, "a", 2 * fold.WINDOW + 1, "{}"), start=state)
    assert [*state.members["a"].refusals] == [2 * fold.WINDOW + 1]


def test_every_kind_has_a_meaning() -> None:
    assert {*fold.APPLY} == {*Kind}


@given(histories())
def test_messages_counts_the_queues_of_each_message(history: History) -> None:
    state = fold_rows(history.rows)
    counted: dict[int, int] = {}
    for queue in state.queues.values():
        positions = [entry.position for entry in queue.entries.values()]
        assert positions == sorted(positions)
        for message_id in queue.entries:
            counted[message_id] = counted.get(message_id, 0) + 1
    assert state.messages == counted
    assert {key.queue for key in state.bindings} <= {*state.queues}
