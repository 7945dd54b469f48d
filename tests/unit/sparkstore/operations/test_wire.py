"""Lines of the control socket: what goes in comes out, and rubbish is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core.records import MessageHeader
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.operations import wire
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request

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


@given(
    st.sampled_from(Action),
    NAMES,
    st.lists(st.integers(1, (1 << 63) - 1), max_size=5),
    st.none() | NAMES,
)
def test_a_request_comes_out_as_it_went_in(
    action: Action, queue: str, ids: list[int], to: str | None
) -> None:
    request = Request(action, queue, tuple(ids), to)
    content = {"action": action, "queue": queue, "ids": ids, "to": to}
    assert wire.request_of(wire.content_of(wire.line(content))) == request


@given(NAMES, st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=3))
def test_messages_come_out_as_they_went_in(
    queue: str, messages: list[tuple[MessageHeader, bytes]]
) -> None:
    made = [MessageDraft(*message) for message in messages]
    assert wire.put_of(wire.content_of(wire.put_line(queue, made))) == (queue, made)


def test_an_answer_and_an_error_come_out_as_they_went_in() -> None:
    assert wire.answer_of(wire.content_of(wire.answer_line(Answer(1, 2, 3)))) == Answer(1, 2, 3)
    with pytest.raises(Fenced, match="stop"):
        wire.answer_of(wire.content_of(wire.error_line(Fenced("stop"))))


@pytest.mark.parametrize("content", [{"error": "KeyboardInterrupt"}, {"error": 3}, {}])
def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(content: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        wire.answer_of(content)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"7", b"\xff", b'{"a": NaN', b"[" * 100_000], ids=len
)
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRequest):
        wire.content_of(line)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"action": "drop", "queue": "q", "ids": []},
        {"action": "move", "queue": 7, "ids": []},
        {"action": "move", "queue": "q", "ids": 7},
        {"action": "move", "queue": "q", "ids": ["1"]},
        {"action": "move", "queue": "q", "ids": [True]},
        {"action": "move", "queue": "q", "ids": [0]},
        {"action": "move", "queue": "q", "ids": [1 << 63]},
        {"action": "move", "queue": "q", "ids": [], "to": 7},
        {"action": ["move"], "queue": "q", "ids": []},
    ],
    ids=str,
)
def test_a_request_that_is_none_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        wire.request_of(content)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        7,
        [7],
        [{}],
        [{"header": {}, "body": "!"}],
        [{"header": {"colour": "brown"}, "body": ""}],
        [{"header": {"header": "!"}, "body": ""}],
        [{"header": {"properties": 7}, "body": ""}],
        [{"header": {"priority": "high"}, "body": ""}],
        [{"header": {"protocol": None}, "body": ""}],
    ],
    ids=str,
)
def test_messages_that_cannot_be_read_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidRequest):
        wire.put_of({"put": "q", "messages": messages})


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (wire.hello("b"), "root 'b', not of 'a'"),
        ({"control": 2, "root_id": "a"}, "version 2"),
        ({}, "version None"),
        ({"error": "Unavailable", "message": "busy"}, "busy"),
    ],
)
def test_a_peer_of_another_root_or_version_is_refused(said: dict[str, Any], reason: str) -> None:
    wire.check_hello(wire.hello("a"), "a")
    with pytest.raises(StoreError, match=reason):
        wire.check_hello(said, "a")


def test_who_holds_what_comes_out_as_it_went_in() -> None:
    shown = [wire.HeldMessage("a::b", 7, ["one", "another"]), wire.HeldMessage("q", 8, [])]
    shown += [wire.HeldMessage("q", each, ["m/link"], 1_790_000_000_000_000) for each in (9, 10)]
    held = wire.HeldMessages(shown, 3)
    assert wire.held_of(wire.content_of(wire.held_line(held))) == held
    assert wire.holders_limit({"holders": 12}) == 12


@pytest.mark.parametrize("limit", [0, -1, True, "all", None])
def test_a_question_about_no_number_of_holders_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidRequest, match="an integer from 1"):
        wire.holders_limit({"holders": limit})


@pytest.mark.parametrize(
    "content", [{}, {"held": 3}, {"held": [["q", 1]]}, {"error": 3}, {"held": [], "since": 3}]
)
def test_holders_that_cannot_be_read_are_unavailable(content: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        wire.held_of(content)
