"""Content kept in memory: all that Delta does not hold yet, and some of the rest."""

from __future__ import annotations

from sparkstore.content.cache import size_of
from sparkstore.core.records import (
    MessageHeader,
    Record,
    content_staged,
    message_dequeued,
    message_enqueued,
)
from sparkstore.log.recent_content import RecentContent

HEADER = MessageHeader(body_bytes=10)
SIZE = size_of((HEADER, b"0123456789"))


def enqueued(message_id: int, body: bytes | None = b"0123456789", queue: str = "q") -> Record:
    return message_enqueued(0, queue, message_id, HEADER, body)


def dequeued(message_id: int) -> Record:
    return message_dequeued(0, "q", message_id, None)


def test_content_that_delta_does_not_hold_is_kept_whatever_the_limit() -> None:
    recent = RecentContent(0)
    recent.add([enqueued(n) for n in range(100)])
    assert all(recent.get(n) == (HEADER, b"0123456789") for n in range(100))


def test_content_that_delta_holds_is_kept_up_to_the_limit_oldest_out_first() -> None:
    recent = RecentContent(3 * SIZE)
    records = [enqueued(n) for n in range(5)]
    recent.add(records)
    recent.committed(records)
    assert [recent.get(n) is not None for n in range(5)] == [False, False, True, True, True]


def test_what_was_asked_for_stays_longer() -> None:
    recent = RecentContent(3 * SIZE)
    records = [enqueued(n) for n in range(4)]
    recent.add(records)
    recent.committed(records[:3])
    recent.get(0)
    recent.committed(records[3:])
    assert [recent.get(n) is not None for n in range(4)] == [True, False, True, True]


def test_a_dequeued_message_leaves_when_delta_holds_the_dequeue() -> None:
    recent = RecentContent(100 * SIZE)
    recent.add([enqueued(1), dequeued(1)])
    assert recent.get(1) is not None
    recent.committed([enqueued(1), dequeued(1)])
    assert recent.get(1) is None


def test_an_entry_on_a_second_queue_brings_no_content_and_takes_none_away() -> None:
    recent = RecentContent(100 * SIZE)
    recent.add([enqueued(1), enqueued(1, None, "other")])
    recent.committed([enqueued(1), enqueued(1, None, "other")])
    assert recent.get(1) == (HEADER, b"0123456789")


def test_an_empty_body_is_content() -> None:
    recent = RecentContent(10)
    recent.add([enqueued(1, b"")])
    assert recent.get(1) == (HEADER, b"")


def test_the_bytes_of_what_left_are_given_back() -> None:
    recent = RecentContent(2 * SIZE)
    for n in range(50):
        recent.add([enqueued(n)])
        recent.committed([enqueued(n), dequeued(n)])
    last = [enqueued(98), enqueued(99)]
    recent.add(last)
    recent.committed(last)
    assert recent.get(98) is not None
    assert recent.get(99) is not None


def staged(message_id: int, body_offset: int, piece: bytes) -> Record:
    return content_staged(0, message_id, body_offset, piece)


def test_content_that_came_in_pieces_is_here_once_it_is_enqueued() -> None:
    recent = RecentContent(100 * SIZE)
    records = [staged(1, 0, b"01234"), staged(1, 5, b"56789"), enqueued(1, None)]
    recent.add(records)
    assert recent.get(1) == (HEADER, b"0123456789")
    recent.committed(records)
    assert recent.get(1) == (HEADER, b"0123456789")


def test_pieces_that_came_twice_count_once() -> None:
    recent = RecentContent(15)
    first, second = staged(1, 0, b"01234"), staged(1, 5, b"56789")
    recent.add([first, first, second, first, second, enqueued(1, None)])
    assert recent.get(1) == (HEADER, b"0123456789")
    recent.add([staged(2, 0, b"0" * 15)])
    recent.add([message_enqueued(0, "q", 2, MessageHeader(body_bytes=15), None)])
    assert recent.get(2) is not None, "what was replaced is not counted"


def test_pieces_that_nobody_enqueues_are_dropped_at_the_limit_and_never_shown_in_part() -> None:
    recent = RecentContent(12)
    recent.add([staged(1, 0, b"01234"), staged(2, 0, b"0123456789")])
    recent.add([staged(1, 5, b"56789"), enqueued(1, None)])
    assert recent.get(1) is None
