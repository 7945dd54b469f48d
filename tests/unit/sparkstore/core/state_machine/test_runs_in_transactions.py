"""A transaction of runs ends as one of the same messages by single calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, permutations

import pytest

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.entries import Entries
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine import batches, transactions
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    DequeueCall,
    EnqueueCall,
    NewMessageRun,
    Queue,
    StoredRun,
    Transaction,
)
from sparkstore.core.state_machine.state_machine import ID_BLOCK, StoreStateMachine
from sparkstore.errors import StoreError

HEADER = MessageHeader("amqp")
OVERFLOWING = {"max_depth": 1, "when_full": "dead_letter", "dead_letter_queue": "dlq"}
QUEUES = {"dlq": {}, "q": OVERFLOWING, "r": {**OVERFLOWING, "max_depth": 2}}


def machine_of(queues: dict[str, dict[str, object]]) -> StoreStateMachine:
    """A machine with queues of these arguments, which are empty."""
    machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, count(5).__next__)
    for name, arguments in queues.items():
        apply(machine, machine.create(Queue(name, arguments=arguments)))
    return machine


def apply(machine: StoreStateMachine, steps: Sequence[object]) -> None:
    """Make steps true."""
    machine.apply([*steps], machine.state.position + 1)  # type: ignore[list-item]


def made(machine: StoreStateMachine, number: int) -> StoredRun:
    """A run of so many new messages."""
    run, steps = batches.new_messages(machine, [HEADER], [b"body"] * number, 100)
    apply(machine, steps)
    return run


def calls_of(run: StoredRun, queue: str, *, is_cut: bool) -> list[EnqueueCall]:
    """The call that puts a run on a queue, or one for each of its messages."""
    return [EnqueueCall(part, queue) for part in (run.singles() if is_cut else [run])]


@pytest.mark.parametrize(
    "queues", [order for size in (2, 3) for order in permutations(QUEUES, size)]
)
def test_a_run_becomes_a_dead_letter_where_its_messages_by_themselves_do(
    queues: tuple[str, ...],
) -> None:
    ends = []
    for is_cut in (False, True):
        machine = machine_of(QUEUES)
        run, within = made(machine, 3), Transaction(1, machine)
        refusal = None
        try:
            for queue in queues:
                for call in calls_of(run, queue, is_cut=is_cut):
                    transactions.enqueue(machine, call, within)
            apply(machine, transactions.commit(machine, within))
        except StoreError as refused:
            refusal = type(refused)
        entries = {name: [*queue.entries] for name, queue in machine.state.queues.items()}
        assert all(len({*ids}) == len(ids) for ids in entries.values())
        ends.append((refusal, entries))
    assert ends[0] == ends[1]


def test_ids_of_more_messages_than_a_block_are_reserved() -> None:
    machine = machine_of({"q": {}})
    made(machine, ID_BLOCK * 3 // 2)
    assert machine.state.next_message_id >= machine.next_id
    many = NewMessageRun([HEADER], [b""] * (ID_BLOCK * 3 // 2), "q")
    apply(machine, batches.enqueue_new(machine, many, 100)[0].steps)
    assert machine.state.next_message_id >= machine.next_id


def test_what_a_transaction_claims_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of({"q": {}})
    run = made(machine, 100)
    apply(machine, transactions.put_alone(machine, EnqueueCall(run, "q")).steps)
    within, ids = Transaction(1, machine), run.message_ids
    acquired = batches.decided(machine, AcquireCall(ids[20:80], "q", "x"), ids[20:80], within)
    assert not any(acquired.outcomes)
    looked_at = 0

    def counted(entries: Entries, message_ids: range, holder: str | None) -> int:
        nonlocal looked_at
        looked_at += len(message_ids)
        return free(entries, message_ids, holder)

    free = Entries.free
    monkeypatch.setattr(Entries, "free", counted)
    assert not any(batches.decided(machine, DequeueCall(ids, "q", "x"), ids, within).outcomes)
    assert looked_at == 40
    apply(machine, transactions.commit(machine, within))
    assert not machine.state.messages


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_transaction_may_make_the_room_for_a_run_after_it(is_cut: bool) -> None:
    machine = machine_of({"q": {"max_depth": 2}})
    old, new = made(machine, 2), made(machine, 2)
    apply(machine, transactions.put_alone(machine, EnqueueCall(old, "q")).steps[:1])
    within, ids = Transaction(1, machine), old.message_ids[:1]
    for call in calls_of(new, "q", is_cut=is_cut):
        transactions.enqueue(machine, call, within)
    assert not any(batches.decided(machine, DequeueCall(ids, "q", None), ids, within).outcomes)
    apply(machine, transactions.commit(machine, within))
    assert [*machine.state.queues["q"].entries] == [*new.message_ids]
