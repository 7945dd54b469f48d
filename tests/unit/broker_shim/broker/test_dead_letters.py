"""Why and whence: rejected, expired and often delivered messages, annotations, first deliveries."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Message, symbol, uint

from broker_shim.amqp_1_0.composites import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol, Timestamp, UInt
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.orders import bulk_operations as embedded_bulk
from broker_shim.errors import InvalidRequest
from broker_shim.listener_1_0.messages.annotations import annotated, encoded_annotations
from broker_shim.listener_1_0.messages.message import framing, parse
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.frames import encoded_frame
from broker_shim.protocol_1_0.codec.values import Array
from broker_shim.store.interface import Queue
from sparkstore.core.annotations import MAX_ANNOTATIONS_BYTES, as_detail, merged
from sparkstore.core.records import Kind, MessageHeader
from sparkstore.core.state_machine.call_values import DequeueCall
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.stores.stores import RecordedMessageStore, done, read

NO_SKU = Error("app:bad", "no such SKU")


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[list[House]]:
    """One broker after the other on the same store; the last one runs."""
    them = [House(Place("delta", tmp_path))]
    yield them
    them[-1].close()


@pytest.fixture
def house(houses: list[House]) -> House:
    return houses[0]


def restarted(houses: list[House]) -> House:
    houses.append(houses[-1].restarted())
    return houses[-1]


def create(house: House, name: str, **arguments: Any) -> None:
    house.broker.create_queue(Queue(name, arguments=arguments), lambda _error: None)
    house.run()


def put(house: House, body: object = "m", queue: str = "q", **fields: Any) -> None:
    """A message, sent whole, with whatever it says of itself."""
    encoded = bytes(Message(body, durable=True, **fields).encode())
    header, content = parse(encoded, now_us=0)
    house.broker.publish(header, content, (queue,), lambda _error: None)
    house.run()


def consumer(house: House, queue: str = "q", handle: int = 0, **source: Any) -> Client:
    client = Client(house)
    client.attach(f"from {queue}", handle, source=Source(queue, **source))
    client.credit(100, handle)
    return client


def came(client: Client) -> list[Message]:
    """The messages that came, each in one frame or more."""
    found: list[Message] = []
    payload = b""
    for transfer, piece in client.taken(Transfer):
        payload += piece
        if not transfer.more:
            message = Message()
            message.decode(payload)
            found, payload = [*found, message], b""
    return found


def one(client: Client) -> Message:
    [message] = came(client)
    return message


def _command(body: object) -> bytes:
    return b"\0\x53\x77" + write(body)


def _declared(client: Client) -> bytes:
    while True:
        state = client.take(Disposition).state
        if isinstance(state, Declared):
            return bytes(state.txn_id)


def _flow(delivery_count: int, credit: int) -> bytes:
    told = Flow(None, 2048, 0, 2048)
    told.handle, told.delivery_count, told.link_credit = 0, delivery_count, credit
    return encoded_frame(told, 0)


def outcomes(house: House) -> list[dict[str, Any] | None]:
    assert isinstance(house.store, RecordedMessageStore)
    details = [each.detail for each in read(house.store.sink.log) if each.kind is Kind.DEQUEUED]
    return [None if each is None else json.loads(each) for each in details]


def death_of(message: Message) -> dict[str, Any]:
    return {
        str(key).removeprefix("x-opt-death-"): value
        for key, value in (message.annotations or {}).items()
        if key != "x-opt-death-time" and "-first-" not in str(key)
    }


def test_what_has_no_entry_is_not_taken_off_a_queue_that_has_dead_letters(
    house: House,
) -> None:
    """At a member the service may have it still: removed there, it would be lost."""
    create(house, "q", dead_letter_queue="dlq")
    create(house, "plain")
    broker = house.broker
    for name in ("q", "plain"):
        queue = broker.queues[name]
        parts: Any = broker, broker.settlement, None, queue, (4711,), "holder", {}
        rejection = Rejection(*parts)
        if name == "plain":
            assert [type(step) for step in rejection.steps()] == [DequeueCall]
            continue
        with pytest.raises(InvalidRequest, match="4711 has no entry on 'q' here"):
            rejection.steps()


REJECTED = {
    "queue": "q",
    "reason": "rejected",
    "attempts": 1,
    "condition": "app:bad",
    "description": "no such SKU",
}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("body", ["m", b"x" * (3 << 20)], ids=["small", "large"])
def test_a_rejected_message_goes_to_the_dead_letters_with_why_and_whence(
    houses: list[House], body: object, is_restarted: bool
) -> None:
    house = houses[0]
    create(house, "q", dead_letter_queue="dead")
    put(house, body, annotations={symbol("x-mine"): 7, symbol("x-opt-death-queue"): "a lie"})
    client = consumer(house)
    assert one(client).annotations == {"x-mine": 7, "x-opt-death-queue": "a lie"}
    client.dispose(0, Rejected(NO_SKU))
    if is_restarted:
        house = restarted(houses)
    dead = one(consumer(house, "dead"))
    assert dead.body == body
    assert dead.annotations["x-opt-death-time"] > 1_700_000_000_000
    assert death_of(dead) == {**REJECTED, "x-mine": 7}
    assert outcomes(house) == [
        {
            "outcome": "dead-lettered",
            "reason": "rejected",
            "to": "dead",
            "condition": "app:bad",
            "description": "no such SKU",
        }
    ]
    assert len(house.broker.queues["q"]) == 0


@pytest.mark.parametrize("arguments", [{}, {"dead_letter_queue": "dead", "on_reject": "drop"}])
def test_a_rejected_message_leaves_the_store_where_that_is_wanted_or_there_are_no_dead_letters(
    house: House, arguments: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    create(house, "q", **arguments)
    put(house)
    put(house)
    client = consumer(house)
    with caplog.at_level(logging.INFO):
        client.dispose(0, Rejected(NO_SKU))
        client.dispose(1, Rejected(NO_SKU))
    told = {"outcome": "rejected", "condition": "app:bad", "description": "no such SKU"}
    assert outcomes(house) == [told, told]
    assert "dead" not in house.broker.queues
    said = [each.message for each in caplog.records if "was rejected" in each.message]
    assert said == [
        "queue 'q': message 1 was rejected ('app:bad: no such SKU'): it goes off the store, history"
        " has it"
    ]
    metrics = house.broker.metrics
    assert (metrics.died_rejected, metrics.dead_lettered) == (2, 2)
    assert house.broker.queues["q"].dead_lettered == 2


def test_a_message_rejected_in_a_transaction_goes_at_its_commit_or_stays(house: House) -> None:
    create(house, "q", dead_letter_queue="dead")
    put(house)
    client = consumer(house)
    client.attach("tx", 1, is_receiver=False, target=Coordinator())
    client.taken(Transfer)
    for number, fail in enumerate((True, False)):
        client.deliver_encoded(b"d%d" % number, _command(Declare()), 1)
        txn_id = _declared(client)
        client.dispose(0, TransactionalState(txn_id, Rejected(NO_SKU)), settled=False)
        assert "dead" not in house.broker.queues
        client.deliver_encoded(b"c%d" % number, _command(Discharge(txn_id, fail)), 1)
    assert death_of(one(consumer(house, "dead"))) == REJECTED
    assert len(house.broker.queues["q"]) == 0


def test_what_expired_or_failed_too_often_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(house, "q", dead_letter_queue="dead", max_delivery_count=1)
    put(house)
    client = consumer(house)
    for number in range(2):
        client.taken(Transfer)
        client.dispose(number, Modified(delivery_failed=True))
    often = one(consumer(house, "dead"))
    assert death_of(often) == {"queue": "q", "reason": "over-delivered", "attempts": 2}
    client.close()
    put(house, ttl=1)
    monkeypatch.setattr(embedded_bulk, "wall_us", lambda: 10**15)
    last = consumer(house)
    last.settle_down()
    assert came(last) == []
    assert house.broker.metrics.died_over_delivered == 1
    assert house.broker.metrics.died_expired == 1


def test_a_second_death_takes_the_place_of_the_first(house: House) -> None:
    create(house, "q", dead_letter_queue="dead")
    create(house, "dead", dead_letter_queue="grave")
    put(house)
    client = consumer(house)
    client.taken(Transfer)
    client.dispose(0, Rejected(NO_SKU))
    undertaker = consumer(house, "dead")
    assert death_of(one(undertaker)) == REJECTED
    undertaker.dispose(0, Rejected())
    assert death_of(one(consumer(house, "grave"))) == {
        "queue": "dead",
        "reason": "rejected",
        "attempts": 1,
    }


def test_a_rejected_message_that_the_dead_letters_have_only_leaves_its_queue(house: House) -> None:
    create(house, "q", dead_letter_queue="dead")
    create(house, "dead")
    encoded = bytes(Message("m", durable=True).encode())
    header, content = parse(encoded, now_us=0)
    house.broker.publish(header, content, ("q", "dead"), lambda _error: None)
    client = consumer(house)
    client.taken(Transfer)
    client.dispose(0, Rejected())
    assert (len(house.broker.queues["q"]), len(house.broker.queues["dead"])) == (0, 1)


@pytest.mark.parametrize("is_one_gone", [False, True])
def test_a_range_is_rejected_by_one_transaction_and_one_message_keeps_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch, is_one_gone: bool
) -> None:
    transact, sizes = house.calls.transact, list[int]()

    def counted(steps: Any, *more: Any) -> None:
        steps = [*steps]
        sizes.append(sum(len(s.message_ids) for s in steps if isinstance(s, DequeueCall)))
        transact(steps, *more)

    monkeypatch.setattr(house.calls, "transact", counted)
    create(house, "q", dead_letter_queue="dead")
    for number in range(6):
        put(house, str(number))
    client = consumer(house)
    client.taken(Transfer)
    holder = house.store.recover().entries["q"][3].acquired_by
    if is_one_gone:
        done(house.store.dequeue, 3, "q", holder)
    client.dispose(0, Rejected(NO_SKU), last=4, settled=False)
    gone = [3] if is_one_gone else []
    assert sizes == ([2, 2] if is_one_gone else [5])  # the store is not asked for what is gone
    assert [*house.store.recover().entries["dead"]] == [i for i in range(1, 6) if i not in gone]
    assert [*house.store.recover().entries["q"]] == [6]
    answers = [answer for answer, _payload in client.taken(Disposition)]
    ranges = [range(answer.first, (answer.last or answer.first) + 1) for answer in answers]
    settled = [delivery_id for some in ranges for delivery_id in some]
    assert sorted(settled) == [i for i in range(5) if i + 1 not in gone]


@pytest.mark.parametrize("transacted", [False, True])
def test_annotations_of_modified_are_merged_and_outlive_restarts(
    houses: list[House], transacted: bool
) -> None:
    house = houses[0]
    create(house, "q")
    put(house, annotations={symbol("x-a"): 1, symbol("x-b"): "mine"})
    client = consumer(house)
    client.taken(Transfer)
    given = {
        Symbol("x-b"): "theirs",
        Symbol("x-n"): UInt(9),
        Symbol("x-l"): ["a", [True]],
        Symbol("x-opt-death-queue"): "a lie",
    }
    outcome: Any = Modified(delivery_failed=True, message_annotations=given)
    if transacted:
        client.attach("tx", 1, is_receiver=False, target=Coordinator())
        client.deliver_encoded(b"d", _command(Declare()), 1)
        txn_id = _declared(client)
        client.dispose(0, TransactionalState(txn_id, outcome))
        client.deliver_encoded(b"c", _command(Discharge(txn_id, False)), 1)
    else:
        client.dispose(0, outcome)
    expected = {"x-a": 1, "x-b": "theirs", "x-n": uint(9), "x-l": ["a", [True]]}
    again = one(client)
    assert (again.annotations, again.delivery_count) == (expected, 1)
    house = restarted(houses)
    client = consumer(house)
    assert one(client).annotations == expected
    client.dispose(0, Modified(message_annotations={Symbol("x-n"): None, Symbol("x-z"): b"\xff"}))
    assert one(client).annotations == {**expected, "x-n": None, "x-z": b"\xff"}


def test_annotations_of_many_rounds_stay_within_their_limit(house: House) -> None:
    create(house, "q")
    put(house)
    client = consumer(house)
    for number in range(40):
        client.taken(Transfer)
        given = {Symbol(f"x-{number}"): "a" * 1000}
        client.dispose(number, Modified(message_annotations=given))
    [entry] = house.store.recover().entries["q"].values()
    assert entry.detail is not None
    assert MAX_ANNOTATIONS_BYTES - 1100 < len(entry.detail) <= MAX_ANNOTATIONS_BYTES
    assert len(one(client).annotations) < 40


def test_a_message_that_was_moved_keeps_its_annotations(house: House) -> None:
    create(house, "q", dead_letter_queue="dead")
    put(house)
    client = consumer(house)
    client.taken(Transfer)
    client.dispose(0, Rejected(NO_SKU))
    move = embedded_bulk.Request(embedded_bulk.Action.MOVE, "dead", (1,), "q")
    house.broker.bulk.run(move, lambda _error, _answer: None)
    again = one(client)
    assert (death_of(again), again.first_acquirer) == (REJECTED, False)


# ---------------------------------------------------------------- first deliveries, and what counts


def test_only_a_first_delivery_says_first_acquirer(houses: list[House]) -> None:
    house = houses[0]
    create(house, "q")
    put(house)
    client = consumer(house)
    assert one(client).first_acquirer
    client.dispose(0, Released())
    again = one(client)
    assert (again.first_acquirer, again.delivery_count) == (False, 0)
    house = restarted(houses)
    late = one(consumer(house))
    assert (late.first_acquirer, late.delivery_count) == (False, 1)


def test_a_browser_acquires_nothing_and_is_never_told_that_it_does(house: House) -> None:
    create(house, "q")
    put(house)
    assert not one(consumer(house, distribution_mode="copy")).first_acquirer
    assert one(consumer(house)).first_acquirer


def test_a_message_of_another_protocol_is_told_likewise() -> None:
    header = MessageHeader("raw", b"", body_bytes=1)
    detail = as_detail({"x-a": ("string", "b")})
    for is_first in (True, False):
        around = framing(header, delivery_count=0, now_us=0, is_first=is_first, detail=detail)
        message = Message()
        message.decode(around.lead + b"x" + around.tail)
        assert (message.first_acquirer, message.annotations) == (is_first, {"x-a": "b"})


@pytest.mark.parametrize(
    ("way", "source", "failed"),
    [
        ("vanish", {}, 1),
        ("detach", {}, 0),
        ("end_session", {}, 0),
        ("close", {}, 0),
        ("close", {"default_outcome": Modified(delivery_failed=True)}, 1),
        ("detach", {"default_outcome": Modified(delivery_failed=True)}, 1),
        ("vanish", {"default_outcome": Released()}, 1),
    ],
)
def test_a_lost_consumer_counts_and_one_that_leaves_says_what_counts(
    house: House, way: str, source: dict[str, Any], failed: int
) -> None:
    create(house, "q")
    put(house)
    client = consumer(house, **source)
    assert one(client).delivery_count == 0
    getattr(client, way)()
    again = one(consumer(house))
    assert (again.delivery_count, again.first_acquirer) == (failed, False)


@pytest.mark.parametrize("asked", [Modified(delivery_failed=True), Released()])
def test_the_default_outcome_that_is_honoured_is_told(
    house: House, asked: Modified | Released
) -> None:
    create(house, "q")
    answer = Client(house).attach("r", source=Source("q", default_outcome=asked))
    assert answer.source.default_outcome == asked


def test_what_was_not_written_to_a_lost_consumer_does_not_count(house: House) -> None:
    create(house, "q")
    put(house, "read")
    put(house, "on the way")
    client = Client(house)
    client.attach("r", source=Source("q"))
    client.credit(1)
    assert one(client).body == "read"
    client.ours.unsent(1)  # of what follows the socket takes all but its last byte
    client.ours.receive(_flow(1, 1))
    house.run()
    assert client.ours.output()
    client.ours.unsent(1)
    client.vanish()
    counts = {each.body: each.delivery_count for each in came(consumer(house))}
    assert counts == {"read": 1, "on the way": 0}


# ------------------------------------------------------------------------------ in themselves


def test_every_type_of_a_value_comes_back_as_it_was() -> None:
    values = {
        Symbol("a"): True,
        Symbol("b"): Timestamp(-1),
        Symbol("c"): Array("int", (1, 2)),
        Symbol("d"): 1.5,
        Symbol("e"): None,
        Symbol("f"): Symbol("s"),
        Symbol("g"): {"k": [b"v"]},
        "no symbol": 1,
    }
    kept = encoded_annotations(values)
    assert set(kept) == {"a", "b", "c", "d", "e", "f", "g"}
    message = Message()
    message.decode(annotated(b"", None, as_detail(kept)))
    again = message.annotations
    assert (again["a"], again["b"], again["d"], again["e"]) == (True, -1, 1.5, None)
    assert (list(again["c"]), again["f"], again["g"]) == ([1, 2], "s", {"k": [b"v"]})
    assert isinstance(again["b"], proton.timestamp)


@pytest.mark.parametrize("value", [("uint", "-1"), ("uint", "x"), ("amqp", "a1"), ("new", "1")])
def test_an_annotation_that_cannot_be_read_is_left_out(value: tuple[str, str]) -> None:
    detail = as_detail({"x-a": value, "x-b": ("boolean", "false")})
    message = Message()
    message.decode(annotated(b"", None, detail))
    assert message.annotations == {"x-b": False}


def test_nobody_else_may_say_how_a_message_ended() -> None:
    assert merged(None, {"x-opt-death-queue": ("string", "a lie")}) == {}


def test_deaths_of_one_kind_make_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [100.0]
    dead_letters = DeadLetters(Metrics(), {}, lambda *_: None, lambda: now_s[0])
    outcome = {"outcome": "dead-lettered", "reason": "expired", "to": "dead"}
    take = DequeueCall((7,), "q", None, outcome)
    with caplog.at_level(logging.INFO):
        for at_s in (100.0, 101.0, 159.9, 160.0):
            now_s[0] = at_s
            dead_letters.note(take)
        dead_letters.note(replace(take, message_ids=range(8, 108), queue="other"))
        now_s[0] = 220.0
        dead_letters.note(replace(take, queue="other"))
    said = [each.message for each in caplog.records if each.message.startswith("queue")]
    assert said == [
        "queue 'q': message 7 expired: it goes to 'dead'",
        "queue 'q': message 7 expired: it goes to 'dead'; 2 more since the last line",
        "queue 'other': message 8 expired: it goes to 'dead'",
        "queue 'other': message 7 expired: it goes to 'dead'; 99 more since the last line",
    ]
