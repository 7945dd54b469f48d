"""Batches of a stream, staged and published in any order of failures, against a model.

The steps are what Spark does with a sink: its tasks stage parts of a batch, some of them more than
once, and a task that was given up goes on. Its driver publishes the batch, and may die before it
knows. The store loses power between any two steps, and while a batch is being published. Whatever
came before, each batch is on the queue once and whole, or not at all.

The service's decisions are real, and its log is a list, of which a loss of power leaves what was
durable. `tests/system/test_sink_killed.py` kills real processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from broker_shim.durability import TerminusDurability
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.requests import MemberRequests
from broker_shim.service.service_metrics import ServiceMetrics
from broker_shim.store import protocol as wire
from broker_shim.store.delta import Batch
from broker_shim.store.settlement_times import SettlementTimes
from sparkstore.core import fold
from sparkstore.core.records import Kind, MessageHeader, Record, Run
from sparkstore.core.state_machine import branches
from sparkstore.core.state_machine.call_values import Queue
from sparkstore.core.state_machine.publications import ABANDONED_S, UNNUMBERED, Attempt, attempt_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid, xid_bytes

STREAM = "6f1c0c0e-1b1e-4c53-9b1a-0b8d6e0a8a11"
PARTITIONS = st.sampled_from([0, 1])
FLAGS = st.booleans()
ROWS = 2
"""Messages of a branch."""


def rows_of(batch: int, partition: int) -> list[str]:
    """What a task reads of its source: the same whenever the batch runs."""
    return [f"{batch}.{partition}.{row}" for row in range(2 * ROWS + partition)]


def rows_of_all(batch: int) -> list[str]:
    """The rows of a batch, in the order of their partitions."""
    return rows_of(batch, 0) + rows_of(batch, 1)


class ListLog:
    """A log in memory, whose last item a loss of power may take."""

    def __init__(self, items: Sequence[Sequence[Record]]) -> None:
        self.items = [*items]

    @property
    def records(self) -> list[Record]:
        return [record for item in self.items for record in item]

    @property
    def next_position(self) -> int:
        return len(self.records) + 1

    def pack(self, _records: Sequence[Record]) -> bytes:
        return b""

    def append_packed(self, runs: Sequence[Run], _packed: bytes, _done: object) -> None:
        self.items.append([record for run in runs for record in run.singles()])


class ListService:
    """A run of the service over what is left of its log.

    Attributes:
        now_s: Its clock, in seconds.
    """

    def __init__(self, items: Sequence[Sequence[Record]] = (), now_s: int = 0) -> None:
        self.log: Any = ListLog(items)
        self.now_s, state = now_s, fold.State()
        for position, record in enumerate(self.log.records, 1):
            fold.apply(state, position, record)
        self.machine = StoreStateMachine(
            state, TerminusDurability.UNSETTLED_STATE, lambda: self.now_s * 1_000_000
        )
        branches.restore(self.machine)
        decisions = Decisions(self.machine, "m", 1 << 20)
        self._requests = MemberRequests(decisions, "m", ServiceMetrics())
        there = state.members.get("m")
        self._request = 0 if there is None else there.last_request
        self._transaction = 0

    def begin(self) -> None:
        """Make the queue."""
        batch = Batch(self.machine, self.log, iter((1,)), None, SettlementTimes(self.machine))
        batch.take(self.machine.create(Queue("q")))
        batch.take(self.machine.reserve(100_000)[1])
        batch.hand_over()

    def ask(self, kind: int, *body: Any) -> str:
        """Make one request; why it was refused, by its error's name and message."""
        self._request += 1
        numbers, times = iter(range(1, 1000)), SettlementTimes(self.machine)
        batch = Batch(self.machine, self.log, numbers, None, times)
        decided = self._requests.decide(batch, [(kind, (self._request, *body))])
        batch.hand_over()
        return " ".join(f"{name}: {message}" for _, name, message in decided.refusals)

    def stage(self, xid: Xid, first_id: int, texts: Sequence[str]) -> str:
        """Prepare a branch of new messages."""
        self._transaction += 1
        told = [
            tuple(
                Record(
                    Kind.ENQUEUED,
                    0,
                    "q",
                    message_id,
                    message=tuple(MessageHeader(body_bytes=len(text))),  # type: ignore[arg-type]
                    body=text.encode(),
                )
            )
            for message_id, text in enumerate(texts, first_id)
        ]
        fields = tuple((int(each[0]), *each[1:]) for each in told)
        assert self.ask(wire.OPEN, self._transaction) == ""
        assert self.ask(wire.ADD, self._transaction, fields) == ""
        return self.ask(wire.PREPARE, self._transaction, xid_bytes(xid))

    def publish(self, stream: str, batch: int, xids: Sequence[Xid]) -> str:
        """Publish a batch."""
        return self.ask(wire.PUBLISH, stream, batch, tuple(map(xid_bytes, xids)))

    def texts(self) -> list[str]:
        """Bodies on the queue, in its order."""
        bodies = {
            record.message_id: record.body
            for record in self.log.records
            if record.body is not None and record.message_id is not None
        }
        return [bodies[each].decode() for each in self.machine.state.queues["q"].entries]


class SinkMachine(RuleBasedStateMachine):
    """A query, its checkpoint, and the store.

    Attributes:
        batch: The number of the batch that runs; the checkpoint has all before it.
        is_there: Whether that batch is on the queue already.
        staged: The branches of the last attempt of each partition of it.
        expected: What is on the queue of all batches before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.service = ListService()
        self.batch, self.is_there = 0, False
        self.staged: dict[int, list[Xid]] = {}
        self.expected: list[str] = []
        self.next_id = 1

    @initialize()
    def begin(self) -> None:
        self.service.begin()

    @rule(partition=PARTITIONS)
    def a_task_stages_its_part(self, partition: int) -> None:
        self.staged[partition] = self.stage(self.batch, partition)

    @precondition(lambda self: self.batch > 0)
    @rule(partition=PARTITIONS, back=st.integers(1, 3))
    def a_task_that_was_given_up_stages_too_late(self, partition: int, back: int) -> None:
        assert self.stage(max(self.batch - back, 0), partition) == []

    @rule(partition=PARTITIONS)
    def a_task_dies_when_it_has_staged(self, partition: int) -> None:
        self.stage(self.batch, partition)

    @rule()
    def the_driver_aborts(self) -> None:
        for xid in [xid for xids in self.staged.values() for xid in xids]:
            self.service.ask(wire.DECIDE, xid_bytes(xid), False)
        self.staged.clear()

    @rule(dies=FLAGS)
    def the_driver_publishes(self, dies: bool) -> None:
        """It dies before it has noted that, or goes on with the next batch."""
        assert self.service.publish(STREAM, self.batch, self.named()) == ""
        self.is_there = True
        self.staged.clear()
        assert [each for each in self.left() if each.batch <= self.batch] == []
        if not dies:
            self.expected += rows_of_all(self.batch)
            self.batch, self.is_there = self.batch + 1, False

    @rule()
    def a_driver_that_was_given_up_publishes_its_own(self) -> None:
        """What this driver's tasks have staged meanwhile comes too late, and is no failure."""
        own = self.stage(self.batch, 0) + self.stage(self.batch, 1)
        assert self.service.publish(STREAM, self.batch, own) == ""
        self.is_there = True

    @rule(is_kept=FLAGS)
    def the_power_goes_while_the_driver_publishes(self, is_kept: bool) -> None:
        named = self.named()
        before = len(self.service.log.items)
        assert self.service.publish(STREAM, self.batch, named) == ""
        assert len(self.service.log.items) == before + 1  # which is there as a whole, or not
        self.lose_power(None if is_kept else before)
        self.is_there = self.is_there or is_kept
        self.staged.clear()

    @rule(partition=PARTITIONS, cut=st.integers(0, 9))
    def the_power_goes_while_a_task_stages(self, partition: int, cut: int) -> None:
        before = len(self.service.log.items)
        self.stage(self.batch, partition)
        self.lose_power(before + cut)

    @rule(keeps_tasks=FLAGS)
    def the_power_goes(self, keeps_tasks: bool) -> None:
        self.lose_power(None)
        if not keeps_tasks:
            self.staged.clear()

    @rule(is_aborted=FLAGS)
    def somebody_writes_a_frame(self, is_aborted: bool) -> None:
        """A write without a number is published by itself, or leaves something behind."""
        name = str(uuid4())
        xids = self.stage(UNNUMBERED, 0, name)
        if is_aborted:
            for xid in xids:
                assert self.service.ask(wire.DECIDE, xid_bytes(xid), False) == ""
            refusal = self.service.publish(name, UNNUMBERED, xids)
            assert "was rolled back meanwhile" in refusal
        assert "is not one of batch" in self.service.publish(str(uuid4()), UNNUMBERED, xids)

    @rule()
    def a_day_passes(self) -> None:
        """What nobody published is rolled back by the next publication of any stream."""
        self.service.now_s += ABANDONED_S + 1
        assert self.service.publish(str(uuid4()), UNNUMBERED, []) == ""
        assert self.left() == []
        self.staged.clear()

    @invariant()
    def each_batch_is_there_once_or_not_at_all(self) -> None:
        now = rows_of_all(self.batch) if self.is_there else []
        assert self.service.texts() == self.expected + now

    def stage(self, batch: int, partition: int, stream: str = STREAM) -> list[Xid]:
        """Stage a part as a task does: in several branches, or not at all if it is too late."""
        texts, xids, task = rows_of(batch, partition), list[Xid](), str(uuid4())[:8]
        for start in range(0, len(texts), ROWS):
            xid = Attempt(stream, batch, self.service.now_s, f"{partition}/{task}/{start}").xid
            part = texts[start : start + ROWS]
            refusal = self.service.stage(xid, self.next_id, part)
            self.next_id += len(part)
            if refusal:
                assert refusal.startswith("AlreadyPublished")
                return []
            xids.append(xid)
        return xids

    def named(self) -> list[Xid]:
        """What the driver publishes, after all tasks have staged their parts."""
        for partition in {0, 1} - self.staged.keys():
            self.staged[partition] = self.stage(self.batch, partition)
        return [xid for _partition, xids in sorted(self.staged.items()) for xid in xids]

    def left(self) -> list[Attempt]:
        """Attempts of the stream, or of anybody, that wait to be published."""
        attempts = [
            attempt_of(each.xid) for each in branches.prepared_in(self.service.machine.state)
        ]
        return [each for each in attempts if each is not None and each.batch != UNNUMBERED]

    def lose_power(self, kept: int | None) -> None:
        """Start anew with what was durable: all, or so many items of the log."""
        self.service = ListService(self.service.log.items[:kept], self.service.now_s)


def test_each_batch_is_on_its_queue_once_whatever_fails() -> None:
    examples = 3 * settings().max_examples  # they are quick
    run(SinkMachine, settings=settings(max_examples=examples, stateful_step_count=40))
