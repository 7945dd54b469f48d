"""The requests of one member: each decided once, in order; many under one holding of the lock.

Why exactly once, whatever is sent again: a request is decided only if its number is above the last
one decided. The state that says so changes under the lock that the decision holds. The decision
goes to the log in one item, with the number on its last record; a refusal is a record with its
number. So a log that was cut off anywhere (SIGKILL) holds all of a request or nothing. The state
that is recovered from it says which was the last. A request that leaves no record is decided again
after that, and says the same: it only made sure of something, or was transient.

In a batch (BATCH, RUN) each message is a request with a number, a record and, if refused, a refusal
of its own, in the order of the numbers. So the same holds of each. A log that was cut off within a
batch has a first part of it, whole. Of a batch that comes again the numbers up to the last one
decided are told, and the rest is decided.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.decisions import batch_request
from broker_shim.service.decisions.arrivals import check_record
from broker_shim.service.decisions.decisions import Decisions, Open
from broker_shim.service.service_metrics import ServiceMetrics
from broker_shim.store import protocol as wire
from broker_shim.store.delta import Batch
from broker_shim.store.protocol import Body, Frame, Refusal
from sparkstore.core import fold, records
from sparkstore.core.records import Kind
from sparkstore.core.state_machine import branches, publications
from sparkstore.core.state_machine.call_values import RecordStep, singles_of
from sparkstore.core.xids import xid_from

_MAX_NUMBER = (1 << 63) - 1


class BatchDecision(NamedTuple):
    """The outcome of a batch of requests.

    Attributes:
        through: The last request.
        refusals: Of the requests, those that were refused.
        holders: Members that hold something by a branch that was committed; they may be gone.
    """

    through: int
    refusals: list[Refusal]
    holders: set[str]


class MemberRequests:
    """Requests of one member's incarnation, under the store's lock."""

    def __init__(
        self,
        decisions: Decisions,
        member: str,
        metrics: ServiceMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decisions, self._member, self._metrics = decisions, member, metrics
        self._clock = clock
        self._open: dict[int, Open] = {}
        self._highest = 0
        self._holders: set[str] = set()

    def decide(self, batch: Batch, frames: Sequence[Frame]) -> BatchDecision:
        """Decide requests in order and take what they mean into the batch.

        Raises:
            InvalidRequest: A frame is not a well-formed request; those before it are decided.
        """
        state = batch.machine.state
        member = state.members.get(self._member)
        last = through = 0 if member is None else member.last_request
        refusals: list[Refusal] = []
        self._holders = set()
        self._metrics.batches += 1
        try:
            for kind, body in batch_request.requests_of(map(_checked, frames)):
                if isinstance(body, batch_request.Part):
                    through = max(through, self._take_part(batch, body, last, refusals))
                    last = max(last, through)
                    continue
                request = body[0]
                if request <= last:
                    self._metrics.replayed += 1
                    through = max(through, request)
                    refusals += self._again(batch, kind, body)
                    continue
                last = through = request
                self._metrics.requests += 1
                try:
                    self._take(batch, kind, body)
                except StoreError as refusal:
                    self._metrics.refused += 1
                    refusals.append(self._refuse(batch, request, refusal))
        finally:
            if last:
                fold.decided(state, self._member, last)
        return BatchDecision(through, refusals, self._holders)

    def roll_back_late(self, timeout_s: float) -> tuple[int, float | None]:
        """Abort what is open for so long: transactions, and branches that are not prepared.

        Returns:
            How many; and seconds until the next is due, None: nothing is open.
        """
        now_s = self._clock()
        late = [n for n, opened in self._open.items() if now_s - opened.began_at_s >= timeout_s]
        for number in late:
            self._decisions.end(self._open.pop(number), commit=False)
        self._metrics.late += len(late)
        oldest_s = min((opened.began_at_s for opened in self._open.values()), default=None)
        return len(late), None if oldest_s is None else oldest_s + timeout_s - now_s

    def forget(self) -> None:
        """Abort what is open: another incarnation came, or the member is given up."""
        for opened in self._open.values():
            self._decisions.end(opened, commit=False)
        self._open.clear()

    def _take_part(
        self, batch: Batch, part: batch_request.Part, last: int, refusals: list[Refusal]
    ) -> int:
        """Decide those requests of a part that are not decided yet; the number of its last one."""
        count = len(part.message_ids)
        done = min(max(last - part.first + 1, 0), count)
        if done:
            self._metrics.replayed += done
            last_done = part.first + done - 1
            refusals += refusals_of(batch.machine.state, self._member, part.first, last_done)
        self._metrics.requests += count - done

        def refuse(request: int, refusal: StoreError) -> list[RecordStep]:
            self._metrics.refused += 1
            step, row = self._refusal(batch, request, refusal)
            refusals.append(row)
            return [step]

        for some in batch_request.parts_of(part.from_(done)) if done < count else ():
            steps = batch_request.decided(self._decisions, some, self._member, refuse)
            try:
                batch.take(steps)
            except StoreError:  # nothing of it is true: which of them cannot be written?
                self._take_one_by_one(batch, steps, refuse)
        return part.first + count - 1

    def _take_one_by_one(
        self, batch: Batch, steps: list[RecordStep], refuse: batch_request.Refuse
    ) -> None:
        for own in batch_request.by_request(singles_of(steps)):
            try:
                batch.take(own)
            except StoreError as refusal:
                batch.take(refuse(own[-1].record.request or 0, refusal))

    def _again(self, batch: Batch, kind: int, body: Body) -> list[Refusal]:
        """Answer a request that was decided before: its refusal, if it was refused.

        Another run of the service decided it, perhaps. Then pieces and open transactions, which
        that run only had in memory, are built up again: what they are for is not decided yet.
        """
        state, request = batch.machine.state, body[0]
        if kind not in _BUILDS or (refusals := refusals_of(state, self._member, request, request)):
            return refusals_of(state, self._member, request, request)
        try:
            if kind == wire.PIECE:
                batch.take(self._piece(batch, body))
            elif kind == wire.OPEN and body[1] > self._highest:
                self._begin(batch, body)
            elif kind == wire.ADD and self._is_new_to(body[1], request):
                self._add(batch, body)
        except StoreError as refusal:
            refusals = [(request, type(refusal).__name__, _sendable(str(refusal)))]
        return refusals

    def _is_new_to(self, number: int, request: int) -> bool:
        opened = self._open.get(number)
        return opened is not None and request > opened.last_request

    def _take(self, batch: Batch, kind: int, body: Body) -> None:
        if kind in self._OF_BRANCHES:
            self._OF_BRANCHES[kind](self, batch, body)
        else:
            self._take_steps(batch, self._STEPS[kind](self, batch, body), body[0])

    def _prepare(self, batch: Batch, body: Body) -> None:
        opened = self._opened(body[1])
        del self._open[body[1]]
        objects = body[3] if body[3:] else ()
        try:
            publications.check_attempt(batch.machine.state, xid_from(body[2]))
        except StoreError:
            self._decisions.end(opened, commit=False)
            raise
        with self._decisions.prepared(opened, body[2], *objects) as steps:
            self._take_steps(batch, steps, body[0])

    def _decide_branch(self, batch: Batch, body: Body) -> None:
        xid, number = xid_from(body[1]), batch.begin().transaction
        decide = branches.commit if body[2] else branches.roll_back
        steps = decide(batch.machine, xid, number)
        self._holders |= {
            step.record.holder.partition("/")[0]
            for step in steps
            if step.record.kind is Kind.ACQUIRED and step.record.holder
        }
        self._take_steps(batch, steps, body[0])
        branches.forget(batch.machine, xid)

    def _publish(self, batch: Batch, body: Body) -> None:
        """Decide the branches of a batch: no step of it can be refused once there is a plan.

        They are taken one after the other, so that each sees what the one before made of a queue
        with a limit. All are in the item of this batch, which the log keeps or loses as a whole.
        """
        request, name, number, packed, *writer = body
        if not all(type(xid) is bytes for xid in packed):
            raise InvalidRequest("PUBLISH names branches by their xids: give bytes")
        xids = [*map(xid_from, packed)]
        decided = publications.plan(batch.machine, name, number, xids, *writer)
        transaction = batch.begin().transaction
        remembers = decided.is_new and number != publications.UNNUMBERED
        ends = [(branches.roll_back, xid) for xid in decided.rolled_back]
        ends += [(branches.commit, xid) for xid in decided.committed]
        for left, (decide, xid) in zip(range(len(ends) - 1, -1, -1), ends, strict=True):
            steps = decide(batch.machine, xid, transaction)
            if left or remembers:
                batch.take(steps)
            else:
                self._take_steps(batch, steps, request)
            branches.forget(batch.machine, xid)
        if remembers:
            by = writer[0] if writer else None
            step = publications.remembered(batch.machine.now_us(), name, number, by)
            self._take_steps(batch, [step], request)

    def _take_steps(self, batch: Batch, steps: list[RecordStep], request: int) -> None:
        batch.take(batch_request.asked_by(steps, self._member, request))

    def _refuse(self, batch: Batch, request: int, refusal: StoreError) -> Refusal:
        """Put a refusal on record: else a replay could be decided otherwise."""
        step, row = self._refusal(batch, request, refusal)
        batch.take([step])
        return row

    def _refusal(
        self, batch: Batch, request: int, refusal: StoreError
    ) -> tuple[RecordStep, Refusal]:
        name, message = type(refusal).__name__, _sendable(str(refusal))
        detail = json.dumps({"error": name, "message": message})
        record = records.refused(batch.machine.now_us(), self._member, request, detail)
        return RecordStep(record, is_kept=True), (request, name, message)

    def _do(self, batch: Batch, body: Body) -> list[RecordStep]:
        if len(body[1]) == 1:
            return self._decisions.one(check_record(body[1][0]))
        return self._decisions.several(body[1], batch.begin)

    def _begin(self, batch: Batch, body: Body) -> list[RecordStep]:
        if body[1] in self._open:
            message = f"transaction {body[1]} is open already: draw another number"
            raise InvalidRequest(message)
        self._open[body[1]] = Open(batch.begin(), began_at_s=self._clock())
        self._highest = max(self._highest, body[1])
        return []

    def _add(self, _batch: Batch, body: Body) -> list[RecordStep]:
        opened = self._opened(body[1])
        opened.last_request = body[0]
        for fields in body[2]:
            self._decisions.added(opened, fields)
        return []

    def _end(self, _batch: Batch, body: Body) -> list[RecordStep]:
        opened = self._opened(body[1])
        del self._open[body[1]]
        return self._decisions.end(opened, commit=body[2], objects=body[3] if body[3:] else ())

    def _forget(self, batch: Batch, body: Body) -> list[RecordStep]:
        return branches.forget_heuristic(batch.machine, xid_from(body[1]))

    def _piece(self, batch: Batch, body: Body) -> list[RecordStep]:
        batch.machine.check_room()
        return self._decisions.staged.piece(body[1])

    def _opened(self, number: int) -> Open:
        opened = self._open.get(number)
        if opened is None:
            message = f"transaction {number} is not open: it ended, was open for too long, or died"
            message += " with a lost service or member: begin it anew"
            raise InvalidRequest(message)
        return opened

    _STEPS: ClassVar[Mapping[int, Callable[[MemberRequests, Batch, Body], list[RecordStep]]]] = {
        wire.DO: _do,
        wire.OPEN: _begin,
        wire.ADD: _add,
        wire.END: _end,
        wire.PIECE: _piece,
        wire.FORGET: _forget,
    }
    _OF_BRANCHES: ClassVar[Mapping[int, Callable[[MemberRequests, Batch, Body], None]]] = {
        wire.PREPARE: _prepare,
        wire.DECIDE: _decide_branch,
        wire.PUBLISH: _publish,
    }


_BODIES: Mapping[int, tuple[type, ...]] = {
    wire.DO: (int, tuple),
    wire.OPEN: (int, int),
    wire.ADD: (int, int, tuple),
    wire.END: (int, int, bool, tuple),
    wire.PIECE: (int, tuple),
    wire.PREPARE: (int, int, bytes),
    wire.DECIDE: (int, bytes, bool),
    wire.FORGET: (int, bytes),
    wire.PUBLISH: (int, str, int, tuple),
    wire.BATCH: (int, tuple, tuple, tuple),
    wire.RUN: (int, tuple, int, int, tuple, tuple),
}
_ALSO: Mapping[int, Sequence[tuple[type, ...]]] = {
    wire.END: ((int, int, bool),),
    wire.PREPARE: ((int, int, bytes, tuple),),
    wire.BATCH: ((int, tuple, tuple, type(None)),),
    wire.RUN: ((int, tuple, int, int, type(None), type(None)),),
    wire.PUBLISH: ((int, str, int, tuple, str),),
}
_BUILDS = {wire.OPEN, wire.ADD, wire.PIECE}
REQUESTS = frozenset(_BODIES)
"""Types of the frames that are requests."""


def refusals_of(state: fold.State, member: str, first: int, last: int) -> list[Refusal]:
    """Get the remembered refusals of a member's requests from `first` to `last`, rising."""
    known = state.members.get(member)
    rows = [] if known is None else known.refusals.items()
    if first == last and known is not None:
        rows = [(first, known.refusals[first])] if first in known.refusals else []
    return [(n, *_told(detail)) for n, detail in rows if first <= n <= last]


def _told(detail: str) -> tuple[str, str]:
    content: dict[str, Any] = json.loads(detail)
    return content["error"], content["message"]


def _checked(frame: Frame) -> Frame:
    """Check that a frame is a request; raises InvalidRequest if it is none."""
    kind, body = frame
    shape = tuple(map(type, body))
    is_right = shape == _BODIES[kind] or shape in _ALSO.get(kind, ())
    if not is_right or not 0 < body[0] <= _MAX_NUMBER:
        message = f"the body of a frame of type {kind} is not what the protocol says"
        raise InvalidRequest(message)
    return frame


def _sendable(message: str) -> str:
    return message.encode("utf-8", "backslashreplace").decode()
