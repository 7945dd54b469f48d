"""Frames of many requests: what is one, and how many requests it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.batch_request import part_of
from broker_shim.store import protocol as wire
from sparkstore.core.records import Kind, MessageHeader, Record


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


def test_a_service_of_version_4_gets_a_run_as_the_batch_that_says_the_same() -> None:
    run = (1, ENQUEUED, 7, 2, (HEADER,), (b"a", b"b"))
    (batch,) = wire.Decoder().feed(wire.as_batch(wire.frame_packer()(wire.RUN, run)))
    assert batch == (wire.BATCH, (1, ENQUEUED, (7, 8), ((HEADER, b"a"), (HEADER, b"b"))))
    ours, older = part_of(wire.RUN, run), part_of(*batch)
    assert [ours.at(index) for index in (0, 1)] == [older.at(index) for index in (0, 1)]
    taken = wire.frame_packer()(wire.RUN, (3, ACQUIRED, 7, 2, None, None))
    assert wire.Decoder().feed(wire.as_batch(taken)) == [(wire.BATCH, (3, ACQUIRED, (7, 8), None))]
    alone = wire.frame_packer()(wire.DO, (1, (ACQUIRED,)))
    assert wire.as_batch(alone) is alone


def test_each_message_of_a_batch_is_a_request() -> None:
    assert part_of(wire.BATCH, (1, ENQUEUED, (7, 8), (CONTENT, CONTENT))).message_ids == (7, 8)
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, (7, 8, 9), None))) == 3
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, 7, None))) == 1
    assert wire.request_count((wire.RUN, (1, ACQUIRED, 7, 3, None, None))) == 3
    assert wire.request_count((wire.RUN, (1, ACQUIRED, 7, "3", None, None))) == 1
    assert wire.request_count((wire.DO, (1, (ACQUIRED, ACQUIRED)))) == 1
