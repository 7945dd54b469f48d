"""New messages as JSON: what goes in comes out, and rubbish is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core.records import MessageHeader
from sparkstore.operations.bulk import MessageDraft
from sparkstore.operations.wire import draft_content, draft_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.none() | st.integers(0, 1 << 60)
HEADERS = st.builds(
    MessageHeader,
    protocol=st.sampled_from(["raw", "amqp-1.0"]),
    header=st.none() | st.binary(max_size=20),
    durable=st.booleans(),
    priority=st.integers(0, 9),
    created_at=TIMES,
    expires_at=TIMES,
    subject=st.none() | NAMES,
    to=st.none() | NAMES,
    properties=st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
    header_bytes=st.just(0),
    body_bytes=st.just(0),
)


@given(HEADERS, st.binary(max_size=50))
def test_a_message_comes_out_as_it_went_in(header: MessageHeader, body: bytes) -> None:
    draft = MessageDraft(header, body)
    assert draft_of(json.loads(json.dumps(draft_content(draft)))) == draft


@pytest.mark.parametrize(
    "draft",
    [
        7,
        {},
        {"header": {}, "body": "!"},
        {"header": {"colour": "brown"}, "body": ""},
        {"header": {"header": "!"}, "body": ""},
        {"header": {"properties": 7}, "body": ""},
        {"header": {"priority": "high"}, "body": ""},
        {"header": {"protocol": None}, "body": ""},
    ],
    ids=str,
)
def test_messages_that_cannot_be_read_are_refused(draft: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        draft_of(draft)
