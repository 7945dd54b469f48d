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
        part_of(body)


def test_each_message_of_a_batch_is_a_request() -> None:
    assert part_of((1, ENQUEUED, (7, 8), (CONTENT, CONTENT))).message_ids == (7, 8)
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, (7, 8, 9), None))) == 3
    assert wire.request_count((wire.BATCH, (1, ACQUIRED, 7, None))) == 1
    assert wire.request_count((wire.DO, (1, (ACQUIRED, ACQUIRED)))) == 1
