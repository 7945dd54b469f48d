"""The state machine: what it keeps, and what a sink that refuses leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, Unavailable
from broker_shim.store.interface import (
    Exchange,
    ExchangeBindingKey,
    MessageHeader,
    Queue,
    StoredMessage,
    StoredRun,
)
from sparkstore.core.fold import State
from sparkstore.core.records import Kind, Run
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.core.state_machine.state_machine import ID_BLOCK, StoreStateMachine
from tests.support.stores.stores import RecordedMessageStore, RecordingSink, done, read

NONE, CONFIGURATION, UNSETTLED_STATE = TerminusDurability
HEADER = MessageHeader(header=b"h", subject="s", priority=9)


@pytest.fixture
def log() -> list[bytes]:
    """What the store kept."""
    return []


@pytest.fixture
def store(log: list[bytes]) -> Iterator[RecordedMessageStore]:
    """A tier 2 store with a durable queue `q` and a transient queue `t`."""
    opened = RecordedMessageStore(log)
    done(opened.create, Queue("q"))
    done(opened.create, Queue("t", NONE))
    yield opened
    opened.close()


def new_records(log: list[bytes], start: int) -> list[Kind]:
    """Kinds of what was kept since `start`."""
    return [record.kind for record in read(log[start:])]


def test_only_what_outlives_a_restart_is_kept(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    for queue, durable in (("q", True), ("q", False), ("t", True), ("t", False)):
        message, start = store.message(HEADER._replace(durable=durable), b"body"), len(log)
        done(store.enqueue, message, queue)
        done(store.acquire, message.message_id, queue, "c")
        done(store.release, message.message_id, queue, "c")
        done(store.dequeue, message.message_id, queue, "c")
        kept = [Kind.ENQUEUED, Kind.ACQUIRED, Kind.RELEASED, Kind.DEQUEUED]
        assert new_records(log, start) == (kept if (queue, durable) == ("q", True) else [])


class RunSink(RecordingSink):
    """Notes the runs that it was given."""

    def __init__(self, log: list[bytes]) -> None:
        super().__init__(log)
        self.runs: list[Run] = []

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        self.runs += runs
        return super().append(runs, on_complete)


class RunStore(RecordedMessageStore):
    """A store over such a sink."""

    sink: RunSink
    sink_of = RunSink


@pytest.mark.parametrize("are_together", [True, False])
@pytest.mark.parametrize("queues", [("q",), ("q", "limited"), ("limited", "q"), ("q", "r")])
def test_neighbours_that_a_transaction_brings_are_one_record_of_each_queue(
    are_together: bool, queues: tuple[str, ...]
) -> None:
    """Also where they came one by one, or a queue looks at each of them."""
    store = RunStore([])
    for name in ("q", "r"):
        done(store.create, Queue(name))
    done(store.create, Queue("limited", arguments={"max_depth": 9}))
    bodies = [b"%d" % number for number in range(7)]
    runs: Sequence[StoredMessage | StoredRun] = store.messages((HEADER,), bodies)
    if not are_together:
        runs = [store.message(HEADER, body) for body in bodies]
    within = store.begin()
    for queue in queues:
        for run in runs:
            done(store.call, EnqueueCall(run, queue), transaction=within)
    start = len(store.sink.runs)
    done(store.commit, within)
    kept = store.sink.runs[start:]
    assert [(run.record.kind, run.record.queue, run.rows) for run in kept] == [
        (Kind.ENQUEUED, queue, len(bodies)) for queue in queues
    ]
    first, *others = [[record.body for record in run.singles()] for run in kept]
    assert first == bodies
    assert others == [[None] * len(bodies)] * len(others)
    store.close()


def test_content_is_kept_once_with_the_first_queue_that_keeps_it(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    done(store.create, Queue("q2"))
    message, start = store.message(HEADER, b"body"), len(log)
    for queue in ("t", "q", "q2"):
        done(store.enqueue, message, queue)
    first, second = read(log[start:])
    assert (first.message, first.body) == (message.header, b"body")
    assert (second.message, second.body) == (message.header.known(), None)


def test_one_transaction_brings_content_once(store: RecordedMessageStore, log: list[bytes]) -> None:
    done(store.create, Queue("q2"))
    message, start, transaction = store.message(HEADER, b"body"), len(log), store.begin()
    for queue in ("q", "t", "q2"):
        done(store.enqueue, message, queue, transaction=transaction)
    assert len(log) == start
    done(store.commit, transaction)
    assert [record.body for record in read(log[start:])] == [b"body", None]
    assert {record.transaction for record in read(log[start:])} == {transaction.transaction}


def test_bindings_go_before_their_queue_by_records_of_their_own(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    done(store.create, Exchange("e", "topic"))
    for key in ("a", "b"):
        done(store.bind, ExchangeBindingKey("e", "q", key), {})
    start = len(log)
    done(store.destroy, Queue("q"))
    assert new_records(log, start) == [Kind.UNBOUND, Kind.UNBOUND, Kind.DESTROYED]


def test_a_call_without_effect_keeps_nothing(store: RecordedMessageStore, log: list[bytes]) -> None:
    start = len(log)
    done(store.create, Queue("q"))
    done(store.commit, store.begin())
    done(store.flush)
    assert len(log) == start


def test_ids_are_reserved_in_blocks_before_any_is_handed_out(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    start = len(log)
    assert store.message(HEADER).message_id == 1
    assert store.message(HEADER).message_id == 2
    (reserved,) = read(log[start:])
    assert (reserved.kind, reserved.message_id) == (Kind.IDS_RESERVED, 1 + ID_BLOCK)


def test_an_id_that_could_not_be_reserved_is_reserved_by_the_next_message(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    """Else a restart would hand it out again."""
    store.sink.is_full = True
    with pytest.raises(Unavailable):
        store.message(HEADER)
    store.sink.is_full = False
    message = store.message(HEADER)
    done(store.enqueue, message, "q")
    again = RecordedMessageStore(log)
    assert again.message(HEADER).message_id > message.message_id
    again.close()


def test_the_state_knows_the_position_of_the_last_record_that_was_kept(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    for queue in ("q", "t"):
        done(store.enqueue, store.message(HEADER), queue)
        assert store.machine.state.position == len(log)
        entries = store.recover().entries[queue]
        assert [entry.position > 0 for entry in entries.values()] == [queue == "q"]


def test_a_call_that_the_sink_refuses_changes_nothing_and_works_later(
    store: RecordedMessageStore, log: list[bytes]
) -> None:
    message, taken = store.message(HEADER, b"x"), store.message(HEADER, b"y")
    done(store.enqueue, taken, "q")
    transaction = store.begin()
    done(store.dequeue, taken.message_id, "q", "c", transaction=transaction)
    before, store.sink.is_full = len(log), True
    for call, args in (
        (store.enqueue, (message, "q")),
        (store.commit, (transaction,)),
        (store.acquire, (taken.message_id, "q", "c")),
        (store.create, (Queue("new"),)),
        (store.destroy, (Queue("q"),)),
    ):
        with pytest.raises(Unavailable):
            done(call, *args)
    assert len(log) == before
    assert [*store.recover().entries["q"]] == [taken.message_id]
    store.sink.is_full = False
    done(store.acquire, taken.message_id, "q", "c")
    done(store.enqueue, message, "q")


def test_a_durable_message_staged_in_the_log_is_refused_by_a_transient_queue(
    store: RecordedMessageStore,
) -> None:
    message: StoredMessage = done(store.stage, store.message(HEADER), [b"x"])
    with pytest.raises(InvalidRequest, match="stage the message with durable=False"):
        done(store.enqueue, message, "t")


def test_the_ledger_takes_over_what_was_recovered() -> None:
    state = State(position=7, next_message_id=50)
    machine = StoreStateMachine(state, UNSETTLED_STATE, lambda: 123)
    (step,) = machine.create(Queue("q"))
    assert (step.record.at, step.is_kept) == (123, True)
    machine.apply([step], 8)
    assert (state.position, state.queues["q"].position) == (8, 8)
    assert machine.message(HEADER, b"")[0].message_id == 50


@pytest.mark.parametrize(("tier", "kept"), [(NONE, 0), (CONFIGURATION, 2), (UNSETTLED_STATE, 4)])
def test_a_store_keeps_no_more_than_its_tier(tier: TerminusDurability, kept: int) -> None:
    log: list[bytes] = []
    store = RecordedMessageStore(log, tier)
    done(store.create, Queue("q"))
    done(store.create, Exchange("e", "topic"))
    done(store.enqueue, store.message(HEADER), "q")
    store.close()
    assert len(log) == kept
