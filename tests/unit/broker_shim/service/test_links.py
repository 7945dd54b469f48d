"""What a member says of links: what is not well formed is refused, whose acquisition it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.arrivals import check_record
from broker_shim.service.decisions.decisions import Decisions, holder_of
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.fold import State
from sparkstore.core.link_records import LinkKey, link_text
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.call_values import RecordStep, Transaction
from sparkstore.core.state_machine.state_machine import StoreStateMachine

LINK = link_text(LinkKey("c", "l", "receiver"))
DETAIL = '{"durability": 2, "source": null, "target": null, "version": 1}'


@pytest.fixture
def machine() -> StoreStateMachine:
    """Of tier 2, with the link attached."""
    made = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 0)
    say(made, Record(Kind.ATTACHED, 0, holder=LINK, detail=DETAIL))
    return made


def say(machine: StoreStateMachine, record: Record) -> list[RecordStep]:
    """What a member's record does, as it comes off the wire."""
    fields = check_record((int(record.kind), *record[1:]))
    steps = Decisions(machine, "m", max_message_bytes=100).one(fields)
    machine.apply(steps, machine.state.position + 1)
    return steps


def test_one_record_settles_many_deliveries(machine: StoreStateMachine) -> None:
    for tag in ("00", "01", "02"):
        say(machine, Record(Kind.UNSETTLED, 0, holder=LINK, binding_key=tag))
    steps = say(machine, Record(Kind.SETTLED, 0, holder=LINK, detail='["00", "02", "ff"]'))
    assert [step.record.binding_key for step in steps] == ["00", "02"]
    assert machine.state.links[LINK].unsettled == {b"\x01": None}


@pytest.mark.parametrize(
    "said",
    [
        {"kind": Kind.ATTACHED, "holder": "c/l", "detail": DETAIL},
        {"kind": Kind.ATTACHED, "holder": '["c","l","both"]', "detail": DETAIL},
        {"kind": Kind.ATTACHED, "holder": "[" * 100_000, "detail": DETAIL},
        {"kind": Kind.ATTACHED, "holder": LINK, "detail": "[]"},
        {"kind": Kind.ATTACHED, "holder": LINK, "detail": DETAIL.replace(": 2", ": true")},
        {"kind": Kind.ATTACHED, "holder": LINK},
        {"kind": Kind.ATTACHED, "detail": DETAIL},
        {"kind": Kind.DETACHED, "holder": LINK, "detail": "closed"},
        {"kind": Kind.UNSETTLED, "holder": LINK},
        {"kind": Kind.UNSETTLED, "holder": LINK, "binding_key": "0"},
        {"kind": Kind.UNSETTLED, "holder": LINK, "binding_key": "00" * 33},
        {"kind": Kind.UNSETTLED, "holder": LINK, "binding_key": "00", "detail": "7"},
        {"kind": Kind.SETTLED, "holder": LINK, "detail": '"00"'},
        {"kind": Kind.SETTLED, "holder": LINK, "detail": "[7]"},
        {"kind": Kind.SETTLED, "holder": LINK, "detail": "["},
    ],
)
def test_what_is_not_well_formed_is_refused(
    machine: StoreStateMachine, said: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        say(machine, Record(at=0, **said))
    assert {*machine.state.links} == {LINK}


def test_a_link_has_what_it_acquired_under_its_own_name_until_the_end(
    machine: StoreStateMachine,
) -> None:
    machine.apply(machine.create(Queue("q")), 2)
    message, steps = machine.message(MessageHeader(), b"")
    machine.apply([*steps, *machine.enqueue(message, "q")], 3)
    acquire = Record(Kind.ACQUIRED, 0, "q", message.message_id, LINK)
    assert holder_of(machine, "m/", acquire._replace(holder="c/l")) == "m/c/l"
    assert holder_of(machine, "m/", acquire) == LINK
    machine.apply(machine.acquire(message.message_id, "q", LINK), 5)
    say(machine, Record(Kind.DETACHED, 0, holder=LINK, detail='{"closed": true}'))
    assert holder_of(machine, "m/", acquire._replace(kind=Kind.RELEASED)) == LINK
    other = acquire._replace(message_id=message.message_id + 1)
    assert holder_of(machine, "m/", other) == f"m/{LINK}"


@pytest.mark.parametrize("is_claimed", [False, True])
def test_what_was_acquired_before_the_link_was_kept_is_let_go_by_it(
    machine: StoreStateMachine, is_claimed: bool
) -> None:
    say(machine, Record(Kind.DETACHED, 0, holder=LINK, detail='{"closed": true}'))
    machine.apply(machine.create(Queue("q")), 3)
    message, steps = machine.message(MessageHeader(), b"")
    machine.apply([*steps, *machine.enqueue(message, "q")], 4)
    acquire = Record(Kind.ACQUIRED, 0, "q", message.message_id, LINK)
    before = holder_of(machine, "m/", acquire)
    assert before == f"m/{LINK}"
    if is_claimed:
        machine.acquire(message.message_id, "q", before, Transaction(1, machine))
    else:
        machine.apply(machine.acquire(message.message_id, "q", before), 6)
    say(machine, Record(Kind.ATTACHED, 0, holder=LINK, detail=DETAIL))
    assert holder_of(machine, "m/", acquire._replace(kind=Kind.RELEASED)) == before
    assert holder_of(machine, "n/", acquire._replace(kind=Kind.RELEASED)) == LINK
