"""Random traffic, an operation, more traffic, undo: queues are what a model says they should be."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core.annotations import RESTORED_FROM, annotations_of
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader, Record
from sparkstore.core.state_machine.call_values import Queue, RecordStep, singles_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.operations.bulk import Action, MessageDraft, Request
from sparkstore.operations.operation_history import LogRow, deletion_name, follow
from sparkstore.operations.placement import Placement, PlacementRequest, joined
from sparkstore.operations.root_at_rest import bulk_steps, placement_steps, plan, put_steps
from sparkstore.operations.undo import UndoPlan, UndoStep, plan_undo

QUEUES = ("a", "b")
Entry = tuple[int, int, str]
"""The message that it is, or is a copy of; its failed deliveries; its other annotations."""


def row_of(position: int, record: Record) -> LogRow:
    header = record.message
    return LogRow(
        position,
        record.kind.column,
        record.queue,
        record.message_id,
        record.at,
        record.transaction,
        record.delivery_count,
        None if header is None else header.expires_at,
        record.detail,
        record.exchange,
        record.binding_key,
    )


@dataclass
class Store:
    """A state machine, the rows that it wrote, and the original of each copy."""

    machine: StoreStateMachine
    rows: list[LogRow] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    operations: int = 0

    @classmethod
    def empty(cls) -> Store:
        store = cls(StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 0))
        for name in QUEUES:
            store.append(store.machine.create(Queue(name)))
        return store

    def append(self, steps: list[RecordStep]) -> None:
        position = len(self.rows) + 1
        self.machine.apply([step._replace(is_kept=True) for step in steps], position)
        for number, step in enumerate(singles_of(steps)):
            record = step.record
            self.rows.append(row_of(position + number, record))
            origin = annotations_of(record.detail).get(RESTORED_FROM) if step.message else None
            if origin is not None and record.message_id not in self.origins:
                old = int(origin[1])
                self.origins[record.message_id or 0] = self.origins.get(old, old)

    def put(self, queue: str) -> None:
        draft = MessageDraft(MessageHeader(), b"")
        for group in put_steps(self.machine, queue, [draft], self.number()):
            self.append(group)

    def number(self) -> int:
        self.operations += 1
        return self.operations

    def ids(self, queue: str) -> list[int]:
        there = self.machine.state.queues.get(queue)
        return [] if there is None else [*there.entries]

    def fail(self, queue: str, message_id: int) -> None:
        self.append(self.machine.acquire(message_id, queue, "c"))
        self.append(self.machine.release(message_id, queue, "c", delivery_failed=True))

    def entries(self, queue: str) -> list[Entry]:
        there = self.machine.state.queues.get(queue)
        entries = {} if there is None else dict(there.entries.items())
        return [
            (self.origins.get(message_id, message_id), entry.delivery_count, told(entry.detail))
            for message_id, entry in entries.items()
        ]

    def bulk(
        self, action: Action, queue: str, ids: list[int], portion: int, *, is_named: bool = True
    ) -> str:
        operation = f"op{self.number():08}"
        to = QUEUES[queue == "a"] if action is Action.MOVE else None
        for first in range(0, len(ids), portion):
            part = tuple(ids[first : first + portion])
            request = Request(action, queue, part, to, operation if is_named else None)
            planned, _missing = plan(self.machine.state, request, now_us=0)
            self.append(bulk_steps(self.machine, planned.steps, self.number()))
        return operation

    def resubmit(self, queue: str, message_id: int) -> str:
        operation = f"op{self.number():08}"
        draft = MessageDraft(MessageHeader(), b"")
        self.place([UndoStep(Placement(message_id, queue, queue, draft))], operation, None)
        return operation

    def delete(self, queue: str) -> str:
        self.append(self.machine.destroy(Queue(queue)))
        return deletion_name(len(self.rows))

    def place(self, steps: list[UndoStep], operation: str, undoes: str | None) -> None:
        drafted = (
            placement._replace(draft=MessageDraft(MessageHeader(), b"")) if copies else placement
            for placement, copies, _size in steps
        )
        request = PlacementRequest((*joined(drafted),), operation, undoes)
        for group in placement_steps(self.machine, request, self.number())[0]:
            if group:
                self.append(group)

    def undo(
        self, operation: str, portion: int = 3, portions: int = 1 << 30
    ) -> tuple[str, UndoPlan]:
        """Undo an operation, or as many portions of that, as if it was killed then."""
        undo = f"un{self.number():08}"
        for name in QUEUES:
            self.append(self.machine.create(Queue(name)))
        found = plan_undo(follow(operation, self.rows), self.machine.state.queues, undo, 0)
        for number, first in enumerate(range(0, len(found.steps), portion)):
            if number < portions:
                self.place(found.steps[first : first + portion], undo, operation)
        return undo, found


def told(detail: str | None) -> str:
    kept = {k: v for k, v in annotations_of(detail).items() if not k.startswith("x-opt-res")}
    return str(kept)


CHANCE = st.integers(0, 1000)
EVENTS = st.lists(st.tuples(st.sampled_from("ppfcr"), CHANCE, CHANCE), max_size=12)


def traffic(store: Store, events: list[tuple[str, int, int]]) -> None:
    """Put, fail, consume and requeue messages, as the numbers say."""
    for event, which, place in events:
        queue = QUEUES[which % 2]
        ids = store.ids(queue)
        if event == "p" and queue in store.machine.state.queues:
            store.put(queue)
        elif ids:
            message_id = ids[place % len(ids)]
            if event == "f":
                store.fail(queue, message_id)
            elif event == "c":
                store.append(store.machine.dequeue(message_id, queue, None, None))
                store.consumed.add(message_id)
            elif event == "r":
                store.bulk(Action.REQUEUE, queue, [message_id], 1, is_named=False)


def operate(store: Store, what: str, chosen: list[bool], portion: int) -> str | None:
    ids = [each for each, is_chosen in zip(store.ids("a"), chosen, strict=False) if is_chosen]
    if what == "delete":
        return store.delete("a")
    if not ids:
        return None
    if what == "resubmit":
        return store.resubmit("a", ids[0])
    return store.bulk(Action(what), "a", ids, portion)


OPERATIONS = st.sampled_from(["purge", "move", "requeue", "delete", "resubmit"])
CHOSEN = st.lists(st.booleans(), min_size=12, max_size=12)


@given(EVENTS, OPERATIONS, CHOSEN, st.integers(1, 4), st.integers(1, 4))
def test_an_undo_restores_queues_order_and_counts_exactly(
    before: list[tuple[str, int, int]], what: str, chosen: list[bool], portion: int, undone: int
) -> None:
    store = Store.empty()
    traffic(store, before)
    then = {name: store.entries(name) for name in QUEUES}
    operation = operate(store, what, chosen, portion)
    if operation is None:
        return
    after = {name: store.entries(name) for name in QUEUES}
    undo, plan_ = store.undo(operation, undone)
    assert not plan_.lost
    assert {name: store.entries(name) for name in QUEUES} == then
    assert store.undo(operation)[1].steps == []
    redo, _plan = store.undo(undo, undone)
    if what != "resubmit":
        assert {name: store.entries(name) for name in QUEUES} == after
    store.undo(redo, undone)
    assert {name: store.entries(name) for name in QUEUES} == then


@given(EVENTS, OPERATIONS, CHOSEN, EVENTS, st.integers(1, 4), st.integers(0, 5))
def test_an_undo_after_more_traffic_goes_by_what_others_left(
    before: list[tuple[str, int, int]],
    what: str,
    chosen: list[bool],
    later: list[tuple[str, int, int]],
    portion: int,
    killed_after: int,
) -> None:
    """Also one that was killed, and asked for again.

    What was on the queue before stands in its old order, what came later behind it; what others
    took since is told, and stays away. Requeued messages are later ones.
    """
    store = Store.empty()
    traffic(store, before)
    then = store.entries("a")
    operation = operate(store, what, chosen, portion)
    if operation is None:
        return
    replacements = {entry[0] for entry in store.entries("a")} - {entry[0] for entry in then}
    traffic(store, [each for each in later if each[0] != "r"])
    store.undo(operation, portion, killed_after)
    _undo, plan_ = store.undo(operation, portion)
    lost = {each for ids in plan_.lost.values() for each in ids}
    old = [entry[0] for entry in then]
    gone = store.consumed | (lost if replacements & store.consumed else set())
    now = [entry[0] for entry in store.entries("a")]
    came = [each for each in now if each not in old]
    assert now == [each for each in old if each not in gone] + came
    assert came == sorted(came)
    assert not replacements & {*now}
    assert len(lost) <= len(store.consumed)
    assert store.undo(operation)[1].steps == []
