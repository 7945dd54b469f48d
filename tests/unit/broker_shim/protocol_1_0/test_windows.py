"""The small pure parts: numbers that wrap, windows, credit, ranges of dispositions, heartbeats."""

from __future__ import annotations

import pytest

from broker_shim.amqp_1_0.composites import Accepted, Disposition, Rejected
from broker_shim.protocol_1_0.codec.errors import InvalidCommand, ProtocolViolation
from broker_shim.protocol_1_0.connection import Due, Heartbeat
from broker_shim.protocol_1_0.links.credit import ReceiverCredit, SenderCredit
from broker_shim.protocol_1_0.links.dispositions import DispositionBatch, joined
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.serial import FreeNumbers, distance, plus
from broker_shim.protocol_1_0.windows import IncomingWindow, OutgoingWindow

LAST = 2**32 - 1


def test_numbers_wrap_around() -> None:
    assert plus(LAST, 1) == 0
    assert plus(0, -1) == LAST
    assert distance(LAST, 2) == 3
    assert distance(2, LAST) == -3


def test_the_lowest_free_number_is_handed_out() -> None:
    numbers = FreeNumbers()
    assert [numbers.take() for _ in range(4)] == [0, 1, 2, 3]
    numbers.give_back(2)
    numbers.give_back(0)
    assert [numbers.take() for _ in range(3)] == [0, 2, 4]


def test_a_window_is_used_up_and_opened_again() -> None:
    window = IncomingWindow(4, LAST)
    window.take()
    assert not window.is_low
    window.take()
    assert window.is_low
    window.take()
    window.take()
    with pytest.raises(ProtocolViolation, match="window-violation"):
        window.take()
    assert window.next_id == 3
    window.reopen()
    assert window.left == 4


def test_what_is_on_the_way_is_taken_off_the_peers_window() -> None:
    window = OutgoingWindow(10)
    for _ in range(6):
        window.take()
    window.note_window(4, 10)
    assert window.left == 8
    window.note_window(None, 10)
    assert window.left == 4
    window.note_window(6, 2)
    assert window.left == 2
    window.note_window(0, 5)
    assert window.left == 0


def test_credit_is_counted_from_what_the_receiver_has_seen() -> None:
    credit = SenderCredit()
    credit.grant(None, 5, drain=False)
    credit.waiting += 2
    assert credit.available == 3
    credit.sent()
    credit.sent()
    assert (credit.delivery_count, credit.available) == (2, 3)
    credit.grant(1, 5, drain=False)
    assert credit.available == 4
    credit.grant(0, 1, drain=False)
    assert credit.available == 0


def test_a_drained_sender_counts_as_if_it_had_sent_but_for_what_waits() -> None:
    credit = SenderCredit()
    credit.grant(0, 5, drain=True)
    credit.waiting += 1
    credit.drained()
    assert (credit.delivery_count, credit.available, credit.is_draining) == (4, 0, False)
    assert credit.left
    credit.sent()
    assert (credit.delivery_count, credit.left) == (5, 0)


def test_a_receiver_learns_of_credit_that_was_given_up() -> None:
    credit = ReceiverCredit(LAST)
    credit.give(5, drain=True)
    assert credit.take()
    assert credit.delivery_count == 0
    credit.note_peer(LAST, 5)  # a count before the delivery that is on its way
    assert credit.left == 4
    credit.note_peer(4, 0)
    assert (credit.left, credit.is_draining, credit.delivery_count) == (0, False, 4)
    assert not credit.take()


def test_credit_taken_back_is_gone_once_the_peer_tells_that_it_knows() -> None:
    credit = ReceiverCredit(LAST)
    credit.give(3, drain=False)
    credit.give(0, drain=False)
    assert credit.left == 0
    assert credit.take()  # it was on its way
    credit.note_peer(0, 1)  # written by a peer that has not heard of it
    assert credit.take()
    credit.note_peer(1, 0)
    assert not credit.take()
    credit.give(1, drain=False)
    credit.note_peer(1, 0)  # written before it heard of that one
    assert credit.take()
    assert not credit.take()


def test_a_drain_is_over_when_the_credit_was_used() -> None:
    credit = ReceiverCredit(0)
    assert not credit.is_draining
    credit.give(2, drain=False)
    assert not credit.is_draining
    credit.give(2, drain=True)
    assert credit.take()
    assert credit.is_draining
    assert credit.take()
    assert not credit.is_draining


def test_a_peer_cannot_give_itself_credit() -> None:
    credit = ReceiverCredit(0)
    credit.give(1, drain=False)
    credit.note_peer(0, 1_000)
    assert credit.take()
    assert not credit.take()


def test_consecutive_ids_are_one_range_even_where_they_wrap() -> None:
    assert joined([(3, 3), (1, 2), (7, 7)]) == [(1, 3), (7, 7)]
    assert joined([(0, 0), (LAST, LAST), (1, 1), (LAST - 2, LAST - 2)]) == [
        (LAST - 2, LAST - 2),
        (LAST, 1),
    ]


def test_dispositions_of_one_state_become_one_frame() -> None:
    batch = DispositionBatch()
    for delivery_id in (4, 6, 5):
        batch.add([(delivery_id, delivery_id)], Accepted(), is_incoming=True, is_settled=True)
    batch.add([(7, 7)], Rejected(), is_incoming=True, is_settled=True)
    batch.add([(8, 8)], Accepted(), is_incoming=False, is_settled=False)
    assert batch.take() == [
        Disposition(True, 4, 6, settled=True, state=Accepted()),
        Disposition(True, 7, None, settled=True, state=Rejected()),
        Disposition(False, 8, None, settled=False, state=Accepted()),
    ]
    assert batch.take() == []


def test_a_state_that_cannot_be_told_is_refused_when_it_is_said() -> None:
    with pytest.raises(InvalidCommand):
        DispositionBatch().add([(1, 1)], object(), is_incoming=True, is_settled=True)


def test_a_heartbeat_is_due_at_half_of_what_the_peer_waits() -> None:
    heart = Heartbeat(idle_timeout_s=10.0, now_s=100.0)
    assert heart.next_at_s() == 110.0
    heart.peer_wants(8_000)
    assert heart.next_at_s() == 104.0
    assert heart.due(103.9) is Due.NOTHING
    assert heart.due(104.0) is Due.BEAT
    heart.sent(104.0)
    assert heart.due(107.9) is Due.NOTHING
    assert heart.due(110.0) is Due.SILENT
    heart.received(109.0)
    heart.sent(109.0)
    assert heart.due(110.0) is Due.NOTHING
    assert heart.next_at_s() == 113.0


def test_a_peer_cannot_have_us_beat_all_the_time() -> None:
    heart = Heartbeat(idle_timeout_s=10.0, now_s=0.0)
    heart.peer_wants(1)
    assert heart.due(0.04) is Due.NOTHING
    assert heart.next_at_s() == 0.05


@pytest.mark.parametrize("idle_ms", [None, 0])
def test_a_peer_that_asks_for_no_heartbeat_gets_none(idle_ms: int | None) -> None:
    heart = Heartbeat(idle_timeout_s=10.0, now_s=0.0)
    heart.peer_wants(idle_ms)
    assert heart.due(9.9) is Due.NOTHING


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_frame_bytes": 511},
        {"max_sessions": 0},
        {"max_sessions": 65_537},
        {"max_links": 0},
        {"session_window": 0},
        {"idle_timeout_s": 0.0},
        {"handshake_timeout_s": 0.0},
    ],
)
def test_settings_that_cannot_be_told_to_a_peer_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidCommand, match=next(iter(wrong))):
        Settings("c", **wrong)  # type: ignore[arg-type]
