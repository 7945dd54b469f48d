"""Frames of many requests: what is one, and how many requests it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.batch_request import decided, part_of
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.store import protocol as wire
from sparkstore.core.fold import State
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine.call_values import Queue
from sparkstore.core.state_machine.state_machine import StoreStateMachine


def said(record: Record) -> tuple[Any, ...]:
    """As it comes off the wire."""
    return (int(record.kind), *record[1:])


ACQUIRED = said(Record(Kind.ACQUIRED, 0, "q", holder="me"))
ENQUEUED = said(Record(Kind.ENQUEUED, 0, "q"))
CONTENT = (tuple(MessageHeader()), b"")


@pytest.mark.parametrize(
    "body",
    [
        (1, ACQUIRED, (), None),
        ((1 << 63) - 1, ACQUIRED, (1, 2), None),
        (1, ACQUIRED, tuple(range(wire.MAX_BATCH + 1)), None),
        (1, ACQUIRED, (-1,), None),
        (1, ACQUIRED, ("1",), None),
        (1, ACQUIRED, (True,), None),
        (1, ACQUIRED, (1 << 63,), None),
        (1, ACQUIRED, (1,), (CONTENT,)),
        (1, ACQUIRED[:-1], (1,), None),
        (1, said(Record(Kind.ACQUIRED, 0, "q", 5, "me")), (1,), None),
        (1, (None, *ACQUIRED[1:]), (1,), None),
        (1, said(Record(Kind.CREATED, 0, "q", detail="{}")), (1,), None),
        (1, ENQUEUED, (1,), None),
        (1, ENQUEUED, (1, 2), (CONTENT,)),
        (1, ENQUEUED, (1,), (CONTENT[:1],)),
        (1, ENQUEUED, (1,), (b"ab",)),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_what_is_no_batch_is_refused(body: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest, match=f"type {wire.BATCH} is not what the protocol says"):
        part_of(wire.BATCH, body)


HEADER, MOST = tuple(MessageHeader()), (1 << 63) - 1


@pytest.mark.parametrize(
    "body",
    [
        (1, ACQUIRED, 5, 0, None, None),
        (1, ACQUIRED, 5, -1, None, None),
        (1, ACQUIRED, 5, wire.MAX_BATCH + 1, None, None),
        (1, ACQUIRED, -1, 2, None, None),
        (1, ACQUIRED, MOST, 2, None, None),
        (MOST, ACQUIRED, 1, 2, None, None),
        (1, ACQUIRED, 5, 1, (HEADER,), (b"",)),
        (1, ACQUIRED[:-1], 5, 1, None, None),
        (1, ENQUEUED, 5, 1, None, None),
        (1, ENQUEUED, 5, 2, (HEADER,), (b"",)),
        (1, ENQUEUED, 5, 2, (HEADER,) * 3, (b"",) * 2),
        (1, ENQUEUED, 5, 3, (HEADER,) * 2, (b"",) * 3),
        (1, ENQUEUED, 5, 1, (), ()),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_a_run_that_lies_about_its_lengths_is_refused(body: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest, match=f"type {wire.RUN} is not what the protocol says"):
        part_of(wire.RUN, body)


def test_a_run_says_what_the_batch_of_its_messages_does() -> None:
    run = part_of(wire.RUN, (1, ENQUEUED, 7, 2, (HEADER,), (b"a", b"b")))
    batch = part_of(wire.BATCH, (1, ENQUEUED, (7, 8), ((HEADER, b"a"), (HEADER, b"b"))))
    assert run is not None
    assert batch is not None
    assert [run.at(index) for index in (0, 1)] == [batch.at(index) for index in (0, 1)]


def test_each_message_of_a_batch_is_a_request() -> None:
    batch = part_of(wire.BATCH, (1, ENQUEUED, (7, 8), (CONTENT, CONTENT)))
    assert batch is not None
    assert batch.message_ids == range(7, 9)
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, (7, 8, 9), None))) == 3
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, 7, None))) == 1
    assert wire.request_count((wire.RUN, (1, ACQUIRED, 7, 3, None, None))) == 3
    assert wire.request_count((wire.RUN, (1, ACQUIRED, 7, "3", None, None))) == 1
    assert wire.request_count((wire.DO, (1, (ACQUIRED, ACQUIRED)))) == 1


@pytest.mark.parametrize(
    "record",
    [
        Record(Kind.DEQUEUED, 0, "q", holder="me"),
        Record(Kind.DEQUEUED, 0, "q", holder="me", detail='{"outcome":"rejected"}'),
        Record(Kind.RELEASED, 0, "q", holder="me"),
        Record(Kind.RELEASED, 0, "q", None, "me", 1, detail='{"x-opt-why": ["string", "7"]}'),
    ],
    ids=["accepted", "rejected", "released", "failed"],
)
def test_what_a_member_says_of_a_range_of_messages_is_one_record(record: Record) -> None:
    kept = TerminusDurability.UNSETTLED_STATE
    machine = StoreStateMachine(State(), kept, iter(range(999)).__next__)
    decisions = Decisions(machine, "m", 1 << 20)
    machine.apply(machine.create(Queue("q")), 1)
    machine.apply(machine.reserve(40)[1], 2)
    ids, most = range(1, 41), ((HEADER,), (b"",) * 40)
    asked = (1, ENQUEUED, 1, 40, *most), (41, ACQUIRED, 1, 40, None, None)
    for body in (*asked, (81, said(record), 1, 40, None, None)):
        steps = decided(decisions, part_of(wire.RUN, body), "m", lambda *_: [])
        assert [(step.record.request, step.run.message_ids) for step in steps] == [(body[0], ids)]
        machine.apply(steps, 3)
