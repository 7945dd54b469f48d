"""Content that comes in pieces: what is under way, when it is full, how it completes."""

from __future__ import annotations

import pytest

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.messages.new_message import FLUSHED_BYTES, MOST_UNDER_WAY, NewMessage

HALF = b"x" * (MOST_UNDER_WAY // 2)


class Disk:
    """Takes pieces; each is durable when the test says so."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.under_way: list[OnComplete] = []
        self.refusal: StoreError | None = None
        self.flushes: list[OnComplete] = []

    def add(self, piece: bytes, on_complete: OnComplete) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.pieces.append(piece)
        self.under_way.append(on_complete)

    def turn(self, error: StoreError | None = None) -> None:
        self.under_way.pop(0)(error)


def test_content_is_complete_when_every_piece_is_durable() -> None:
    disk, told = Disk(), list[StoreError | None]()
    message = NewMessage(disk.add, disk.flushes.append, lambda: None)
    message.add_content(b"ab")
    message.add_content(b"c")
    message.content_complete().add_callback(told.append)
    disk.turn()
    assert told == []
    disk.turn()
    assert (told, message.byte_count, disk.pieces) == ([None], 3, [b"ab", b"c"])


def test_content_of_no_piece_is_complete_at_once() -> None:
    assert (
        NewMessage(Disk().add, list[OnComplete]().append, lambda: None)
        .content_complete()
        .is_complete
    )


def test_no_more_is_to_be_read_while_too_much_is_under_way() -> None:
    disk, room = Disk(), list[bool]()
    message = NewMessage(disk.add, disk.flushes.append, lambda: room.append(True))
    message.add_content(HALF)
    assert not message.is_full
    message.add_content(HALF)
    assert message.is_full
    disk.turn()
    assert (message.is_full, room) == (False, [True])


def test_no_more_is_to_be_read_while_much_is_only_in_the_log_and_in_memory() -> None:
    disk, room = Disk(), list[bool]()
    message = NewMessage(disk.add, disk.flushes.append, lambda: room.append(True))
    while len(disk.flushes) < 2:
        message.add_content(HALF)
        disk.turn()
    assert message.byte_count == 2 * FLUSHED_BYTES
    assert message.is_full
    disk.flushes[0](None)
    assert (message.is_full, room) == (False, [True])
    disk.flushes[1](Unavailable("Delta does not answer"))
    assert message.content_complete().complete() is None  # what is durable is durable


def test_the_first_error_is_told_at_the_end_and_later_pieces_are_passed_over() -> None:
    disk, told = Disk(), list[StoreError | None]()
    message, first = NewMessage(disk.add, disk.flushes.append, lambda: None), Unavailable("no room")
    message.add_content(b"a")
    disk.turn(first)
    message.add_content(b"b")
    message.content_complete().add_callback(told.append)
    assert (told, disk.pieces) == ([first], [b"a"])


def test_a_store_that_refuses_a_piece_at_once_is_an_error_at_the_end() -> None:
    disk, told = Disk(), list[StoreError | None]()
    message, disk.refusal = (
        NewMessage(disk.add, disk.flushes.append, lambda: None),
        InvalidRequest("too large"),
    )
    message.add_content(b"a")
    message.content_complete().add_callback(told.append)
    assert told == [disk.refusal]


def test_content_after_the_end_is_a_fault_of_the_caller() -> None:
    message = NewMessage(Disk().add, list[OnComplete]().append, lambda: None)
    message.content_complete()
    with pytest.raises(RuntimeError, match="after it was complete"):
        message.add_content(b"a")
