"""A batch asked of the store service is its calls one by one, wherever the service is killed.

The service is killed at any record of its log, within a batch too, and connections are lost with
answers under way. What each call came to, and what is on the queue, is what calls one by one, of a
service that nobody kills, come to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.service.decisions.arrivals import Fields, check_record
from broker_shim.service.decisions.batch_request import asked_by
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.requests import BatchDecision, MemberRequests, refusals_of
from broker_shim.service.service_metrics import ServiceMetrics
from broker_shim.store import protocol as wire
from broker_shim.store.delta import Batch
from broker_shim.store.remote.batches import EachFrame
from broker_shim.store.remote.pending_requests import PendingRequests, Waiting
from broker_shim.store.settlement_times import SettlementTimes
from sparkstore.core import fold, records
from sparkstore.core.fold import State
from sparkstore.core.records import Kind, MessageHeader, Record, Run
from sparkstore.core.state_machine.call_values import Queue, RecordStep
from sparkstore.core.state_machine.state_machine import StoreStateMachine

_HEADER = MessageHeader(body_bytes=1)
_IDS = 30


def _content(message_id: int) -> tuple[Any, Any]:
    """What is sent as header and content of a message; of some it cannot be."""
    strange = {
        2: (_HEADER, b"xx"),
        3: (_HEADER, None),
        5: (_HEADER._replace(priority=12), b"x"),
        6: (_HEADER._replace(protocol=None), b"x"),
        7: (_HEADER._replace(header_bytes=5), b"x"),
        8: (tuple(_HEADER)[:-1], b"x"),
        9: (_HEADER, "x"),
        10: (b"", b"x"),
    }
    return strange.get(message_id, (_HEADER, b"x"))


def _whole(record: Record, message_id: int) -> Record:
    """The record of one call about a message."""
    header, body = _content(message_id) if record.kind is Kind.ENQUEUED else (None, None)
    return record._replace(message_id=message_id, message=header, body=body)


class _Log:
    """Takes records, in memory."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = [*records]

    @property
    def next_position(self) -> int:
        return len(self.records) + 1

    def pack(self, _records: Sequence[Record]) -> bytes:
        return b""

    def append_packed(self, runs: Sequence[Run], _packed: bytes, _done: object) -> None:
        for run in runs:
            self.records += run.singles()


class _Service:
    """What a run of the service makes of its log, and decides from there on."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.log = _Log(records)
        state = State()
        for position, record in enumerate(records, 1):
            fold.apply(state, position, record)
        self.machine = StoreStateMachine(state, TerminusDurability.UNSETTLED_STATE, lambda: 7)
        self._decisions = Decisions(self.machine, "m", 1 << 20)
        self._requests = MemberRequests(self._decisions, "m", ServiceMetrics())

    def batch(self, use: Callable[[Batch], Any]) -> Any:
        log: Any = self.log
        batch = Batch(self.machine, log, iter(range(1, 1000)), None, SettlementTimes(self.machine))
        try:
            return use(batch)
        finally:
            batch.hand_over()

    def decide(self, frames: Sequence[wire.Frame]) -> BatchDecision:
        decided: BatchDecision = self.batch(lambda batch: self._requests.decide(batch, frames))
        return decided

    def decide_alone(self, request: int, fields: Fields) -> list[str]:
        """Decide a call by itself, and not as a run of one: what it is refused with."""

        def use(batch: Batch) -> list[str]:
            try:
                batch.take(self._alone(request, fields))
            except StoreError as refusal:
                name = type(refusal).__name__
                detail = json.dumps({"error": name, "message": str(refusal)})
                refused = records.refused(7, "m", request, detail)
                batch.take([RecordStep(refused, is_kept=True)])
                return [name]
            return []

        refusals: list[str] = self.batch(use)
        return refusals

    def _alone(self, request: int, fields: Fields) -> list[RecordStep]:
        check_record(fields)
        if fields[0] == Kind.ENQUEUED:
            return self._decisions.enqueued(fields, ("m", request))
        return asked_by(self._decisions.one(fields), "m", request)

    def entries(self) -> list[Any]:
        return [*self.machine.state.queues["kept"].entries.items()]


def _ready() -> _Service:
    service = _Service()
    service.batch(lambda batch: batch.take(service.machine.create(Queue("kept"))))
    service.batch(lambda batch: batch.take(service.machine.reserve(_IDS)[1]))
    return service


_ids = st.one_of(
    st.lists(st.integers(0, _IDS + 1), min_size=1, max_size=6),
    st.tuples(st.integers(0, _IDS), st.integers(1, 8)).map(lambda at: [*range(at[0], sum(at))]),
)
_queue = st.sampled_from(["kept", "kept", "kept", "unknown"])
_holder = st.sampled_from(["me", "you"])
_outcome = st.sampled_from([None, '{"outcome": "rejected"}', "no JSON"])
_taker = st.one_of(st.none(), _holder)  # a release needs one, so without it each is refused
_records = st.one_of(
    _queue.map(lambda queue: Record(Kind.ENQUEUED, 0, queue)),
    st.tuples(_queue, _holder).map(lambda said: Record(Kind.ACQUIRED, 0, said[0], holder=said[1])),
    st.tuples(_queue, _taker, _outcome).map(
        lambda said: Record(Kind.DEQUEUED, 0, said[0], holder=said[1], detail=said[2])
    ),
    st.tuples(_queue, _taker, st.sampled_from([None, 1])).map(
        lambda said: Record(Kind.RELEASED, 0, said[0], holder=said[1], delivery_count=said[2])
    ),
)
_steps = st.one_of(
    st.tuples(st.just("ask"), _records, _ids),
    st.tuples(st.just("ask_apart"), _records, _ids),
    st.tuples(st.just("decide"), st.integers(1, 3)),
    st.tuples(st.just("tell")),
    st.tuples(st.just("lose"), st.none()),
    st.tuples(st.just("kill"), st.integers(1, 3), st.integers(0, 8)),
    st.tuples(st.just("kill"), st.integers(1, 3), st.integers(0, 8)),
)


class _Member:
    """A client's waiting requests, a service that may be killed, and the way between them."""

    def __init__(self) -> None:
        self.service = _ready()
        self.requests = PendingRequests()
        self.outcomes: dict[int, StoreError | None] = {}
        self._pack, self._decoder = wire.frame_packer(), wire.Decoder()
        self._under_way: list[wire.Frame] = []
        self._decided: list[BatchDecision] = []
        self._durable = len(self.service.log.records)
        self.welcome()

    def welcome(self) -> None:
        state = self.service.machine.state
        there = state.members.get("m")
        last = 0 if there is None else there.last_request
        refusals = refusals_of(state, "m", 0, last)
        root = ("i", "root", refusals, 1, 1, 1, 0)
        self._tell(self.requests.welcome(wire.Welcome(last, *root, wire.VERSION)))

    def ask(self, record: Record, message_ids: Sequence[int]) -> None:
        first, answers = self.requests.next_request, [None] * len(message_ids)
        columns: Any = ()
        if record.kind is Kind.ENQUEUED:
            columns = zip(*map(_content, message_ids), strict=True)
        asked = EachFrame(record, 0, message_ids, *columns)
        kind, body = asked.asked()
        if len(message_ids) == 1:
            kind, body = wire.DO, ((_whole(record, message_ids[0]),),)
        frame = self._pack(kind, (first, *body))

        def told(error: StoreError | None) -> None:
            for number, answer in enumerate(answers, first):
                assert number not in self.outcomes
                self.outcomes[number] = error or answer

        self.requests.add(Waiting(first, frame, told, None, 0.0, answers))  # type: ignore[arg-type]

    def ask_apart(self, record: Record, message_ids: Sequence[int]) -> None:
        """Ask in a frame for each what the service may decide together."""
        for message_id in message_ids:
            self.ask(record, [message_id])

    def decide(self, count: int) -> None:
        """So many frames get there."""
        self._under_way += self._decoder.feed(self.requests.take(1 << 20))
        taken, self._under_way = self._under_way[:count], self._under_way[count:]
        if taken:
            self._decided.append(self.service.decide(taken))

    def tell(self) -> None:
        """What is decided is durable, and the member is told."""
        self._durable = len(self.service.log.records)
        for decided in self._decided:
            self._tell(self.requests.done(decided.through, decided.refusals))
        self._decided = []

    def kill(self, count: int, kept: int) -> None:
        """Kill the service over so many frames, within one of them as a rule."""
        self.decide(count)
        self.lose(kept)

    def lose(self, kept: int | None) -> None:
        """Lose the connection; with a number, the service is killed, which had written so many."""
        self._under_way, self._decided = [], []
        if kept is not None:
            self.service = _Service(self.service.log.records[: self._durable + kept])
        self._durable = len(self.service.log.records)  # whatever the next run finds is durable
        self.welcome()

    def _tell(self, completed: Any) -> None:
        for on_complete, error in completed:
            on_complete(error)


@settings(max_examples=150, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(_steps, min_size=3, max_size=25))
def test_a_batch_is_its_calls_one_by_one_wherever_the_service_is_killed(
    steps: list[tuple[Any, ...]],
) -> None:
    member, alone = _Member(), _ready()
    asked: list[tuple[Record, int]] = []
    for name, *arguments in steps:
        getattr(member, name)(*arguments)
        if name in {"ask", "ask_apart"}:
            asked += [(arguments[0], message_id) for message_id in arguments[1]]
    while len(member.requests):
        member.decide(100)
        member.tell()
    expected = {}
    for request, (record, message_id) in enumerate(asked, 1):
        frame = wire.frame_packer()(wire.DO, (request, (_whole(record, message_id),)))
        ((_kind, (_request, (fields,))),) = wire.Decoder().feed(frame)
        expected[request] = alone.decide_alone(request, fields)
    told = {n: [type(e).__name__] if e else [] for n, e in member.outcomes.items()}
    assert told == expected
    assert member.service.entries() == alone.entries()
    assert member.service.log.records == alone.log.records
