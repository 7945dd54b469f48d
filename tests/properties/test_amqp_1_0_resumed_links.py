"""A link whose connection is cut anywhere: resumed, each message is there exactly once."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Accepted, Modified, Received, Rejected, Released
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.protocol_1_0.links.resumption import ResumptionStep, decide, is_outcome, to_tell
from tests.support.amqp.resuming import Broker, Client, Line

MESSAGES = [b"one", b"two" * 200, b"", b"four", b"five", b"six" * 120]
STRIDE = 1 if "SPARKSTORE_SOAK" in os.environ else 5
"""Bytes from one cut to the next."""

FIRST, SECOND = ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND

STATES = st.sampled_from(
    [None, Received(0, 0), Received(2, 7), Accepted(), Rejected(), Released(), Modified()]
)
MAPS = st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), STATES)


@given(ours=MAPS, theirs=MAPS, is_complete=st.booleans(), is_receiver=st.booleans())
def test_every_tag_has_one_decision_that_loses_nothing(
    *, ours: dict[bytes, Any], theirs: dict[bytes, Any], is_complete: bool, is_receiver: bool
) -> None:
    decided = decide(is_receiver=is_receiver, ours=ours, theirs=theirs, is_complete=is_complete)
    assert decided.keys() == ours.keys() | theirs.keys()
    for tag, step in decided.items():
        if tag in theirs and is_outcome(theirs[tag]):  # it has it: it does not come again
            assert step not in {ResumptionStep.SEND_AGAIN, ResumptionStep.RESUME}
        if step is ResumptionStep.SEND_AGAIN:
            assert tag not in theirs
            assert is_complete
        if step is ResumptionStep.FORGET:  # only what has an outcome at the sender
            assert tag not in theirs
            assert is_complete
            assert is_receiver or is_outcome(ours[tag])
        if step in {
            ResumptionStep.RESUME,
            ResumptionStep.ABORT,
            ResumptionStep.RESTATE,
            ResumptionStep.SETTLE,
        }:
            assert not is_receiver
            assert tag in ours.keys() & theirs.keys()
        assert (step is ResumptionStep.IGNORE) == (tag not in ours)
    assert to_tell(decided, ours).items() <= ours.items()


@given(sender=MAPS, receiver=MAPS)
def test_both_ends_agree(sender: dict[bytes, Any], receiver: dict[bytes, Any]) -> None:
    """What one end acts on the other keeps or has no trace of; what one forgets is settled."""
    sent = decide(is_receiver=False, ours=sender, theirs=receiver)
    taken = decide(is_receiver=True, ours=receiver, theirs=sender)
    for tag in sent:
        pair = (sent[tag], taken[tag])
        assert pair[1] in {
            ResumptionStep.SEND_AGAIN: {ResumptionStep.IGNORE},
            ResumptionStep.FORGET: {ResumptionStep.IGNORE},
            ResumptionStep.IGNORE: {ResumptionStep.FORGET},
        }.get(pair[0], {ResumptionStep.KEEP})


def line(*, client_sends: bool, mode: ReceiverSettleMode) -> Line:
    theirs, ours = (MESSAGES, []) if client_sends else ([], MESSAGES)
    client = Client(is_receiver=not client_sends, messages=theirs, mode=mode)
    return Line(client, Broker(is_receiver=client_sends, messages=ours))


def check_all_went_once(line: Line, *, client_sends: bool) -> None:
    """Nothing is lost, doubled or left unsettled, at either end."""
    line.connect()  # the last outcomes may be known to one side only
    line.settle()
    assert line.broker.writes == []
    arrived = line.broker.stored if client_sends else line.client.taken
    assert sorted(arrived) == sorted(MESSAGES)
    if client_sends:
        assert line.client.outcomes == dict.fromkeys(MESSAGES, 1)
    else:
        assert (line.broker.stored, line.broker.payloads) == ([], {})
    assert line.client.unsettled == {}
    line.connect()
    line.settle()
    assert line.broker.unsettled == {}


CASES = [(True, FIRST), (True, SECOND), (False, SECOND)]
"""Client sends or not, and settles how. What a receiver settles first can come twice: see below."""


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("client_sends", "mode"), CASES)
def test_a_connection_cut_anywhere_is_resumed(
    *, client_sends: bool, mode: ReceiverSettleMode, is_killed: bool
) -> None:
    whole = line(client_sends=client_sends, mode=mode)
    whole.connect()
    byte_count = whole.settle()
    assert byte_count > 1_500
    check_all_went_once(whole, client_sends=client_sends)
    for cut in range(0, byte_count, STRIDE):
        each = line(client_sends=client_sends, mode=mode)
        each.connect()
        assert each.settle(cut) == cut
        each.connect(is_killed=is_killed)
        each.settle()
        check_all_went_once(each, client_sends=client_sends)


@pytest.mark.parametrize(("client_sends", "mode"), CASES)
@given(data=st.data())
def test_any_cuts_and_any_delays(
    *, client_sends: bool, mode: ReceiverSettleMode, data: st.DataObject
) -> None:
    """Bytes of either way go late or are lost, the store takes its time, the broker is killed."""
    carried = line(client_sends=client_sends, mode=mode)
    carried.connect()
    amounts = st.integers(1, 60) | st.just(10_000)
    for step in data.draw(st.lists(st.sampled_from("uuuddddwwck"), max_size=60)):
        if step == "u":
            carried.carry_up(data.draw(amounts))
        elif step == "d":
            carried.carry_down(data.draw(amounts))
        elif step == "w" and carried.broker.writes:
            carried.broker.writes.pop(0)()
        elif step in "ck":
            carried.connect(is_killed=step == "k")
    carried.connect()
    carried.settle()
    check_all_went_once(carried, client_sends=client_sends)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("client_sends", "mode"), CASES)
def test_maps_that_do_not_fit_a_frame_are_worked_off(
    *, client_sends: bool, mode: ReceiverSettleMode, is_killed: bool
) -> None:
    """Attach, resume, settle, detach, until all is told (2.7.3); new deliveries wait for that."""
    messages = [b"%d" % n for n in range(150)]
    theirs, ours = (messages, []) if client_sends else ([], messages)
    incomplete_count = 0
    for cut in range(0, 5_000, 40 * STRIDE):
        carried = Line(
            Client(is_receiver=not client_sends, messages=theirs, mode=mode, credit=99),
            Broker(is_receiver=client_sends, messages=ours, credit=99),
        )
        carried.connect()
        for carry in (carried.carry_up, carried.carry_down) * 2:
            carry(1_000 + cut)
        if not is_killed:
            carried.broker.write()
        elif carried.broker.writes:
            carried.broker.writes.pop(0)()
        carried.connect(is_killed=is_killed)
        carried.finish()
        incomplete_count += carried.client.incomplete_count
        arrived = carried.broker.stored if client_sends else carried.client.taken
        assert sorted(arrived) == sorted(messages)
    assert incomplete_count > 0 or (client_sends and is_killed)


def test_what_a_receiver_settles_first_comes_at_least_once() -> None:
    """Case 1: for the sender, what was taken and forgotten looks as if it had never come."""
    twice = 0
    for cut in range(0, 3_000, 7):
        each = line(client_sends=False, mode=FIRST)
        each.connect()
        each.settle(cut)
        each.connect(is_killed=True)
        each.settle()
        assert set(each.client.taken) == set(MESSAGES)
        twice += len(each.client.taken) > len(MESSAGES)
    assert twice > 0
