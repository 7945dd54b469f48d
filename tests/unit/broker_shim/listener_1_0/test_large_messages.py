"""Large messages: in pieces into the store, in pieces to the peer; proton on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.listener_1_0.messages.long_content import long_content
from broker_shim.listener_1_0.receiving.incoming_message import MOST_TAIL_BYTES
from broker_shim.store.delta import DeltaMessageStore
from tests.support.amqp.bench import Bench, received

MIB = 1 << 20
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
FIRST_DURABLE = b"\x00\x53\x70\xc0\x0a\x05\x41\x40\x40\x41\x70\x00\x00\x00\x00"
"""The same on its first way out: nobody had the message before, no delivery failed."""
BODY = bytes(range(256)) * (5 * MIB // 256)
FOOTER = b"\x00\x53\x78\xc1\x01\x00"


def section(code: int, constructor: int, content: bytes) -> bytes:
    return bytes((0, 0x53, code, constructor)) + len(content).to_bytes(4, "big") + content


DATA = section(0x75, 0xB0, BODY)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = DeltaMessageStore(tmp_path / "root")
    it = Bench(store)
    it.broker.ensure_queue("q", lambda _error: None)
    it.run()
    yield it
    it.ours.lost()
    it.run()
    store.close()


class Sender:
    """Sends encoded bytes as one delivery, in parts."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.link = bench.session.sender("s")
        self.link.target.address = "q"
        self.link.open()
        bench.exchange()

    def send(self, encoded: bytes, *, is_last: bool = True) -> Any:
        delivery = self.link.delivery("tag")
        for start in range(0, len(encoded), 300_000):
            self.link.send(encoded[start : start + 300_000])
            self.bench.exchange()
        if is_last:
            self.link.advance()
        for _ in range(50):
            self.bench.exchange()
            if delivery.remote_state or self.link.remote_condition:
                break
        return delivery


def read(bench: Bench, link: Any) -> bytes:
    """The current delivery, whole; the peer's window opens as it is read."""
    whole = b""
    while True:
        bench.exchange()
        bench.run_delayed()
        delivery = link.current
        whole += link.recv(delivery.pending or 1) or b"" if delivery.pending else b""
        if not delivery.partial and not delivery.pending:
            return whole


@pytest.mark.parametrize(
    "encoded",
    [
        DURABLE + DATA,
        DURABLE + DATA + FOOTER,
        DURABLE + DATA + section(0x75, 0xB0, b"more") + FOOTER,
        DURABLE + section(0x77, 0xB0, BODY),
        DURABLE + section(0x77, 0xB1, "äöü€".encode() * 200_000),
    ],
    ids=["data", "data and footer", "two of data", "binary", "text"],
)
def test_a_large_message_goes_through_in_pieces_and_comes_out_as_it_was(
    bench: Bench, encoded: bytes
) -> None:
    staged: list[int] = []
    stage = bench.calls.puts.stage
    bench.calls.puts.stage = lambda header: staged.append(1) or stage(header)  # type: ignore[method-assign, func-returns-value]
    delivery = Sender(bench).send(encoded)
    assert delivery.remote_state == proton.Delivery.ACCEPTED
    assert staged == [1]
    link = bench.receiver(credit=1)
    assert read(bench, link) == FIRST_DURABLE + encoded.removeprefix(DURABLE)
    link.current.update(proton.Delivery.ACCEPTED)
    bench.exchange()
    assert len(bench.broker.queues["q"]) == 0
    assert bench.calls.messages.holders() == {}


def test_a_message_that_is_broken_off_is_on_no_queue(bench: Bench) -> None:
    sender = Sender(bench)
    delivery = sender.send((DURABLE + DATA)[: 3 * MIB], is_last=False)
    delivery.abort()
    bench.exchange()
    assert len(bench.broker.queues["q"]) == 0
    small = proton.Message(body=b"small", durable=True).encode()
    assert sender.send(small).remote_state == proton.Delivery.ACCEPTED


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (DURABLE + DATA[:-1], "ends at"),
        (DURABLE + section(0x77, 0xB1, b"\xff" * 2 * MIB), "not UTF-8"),
        (DURABLE + DATA + section(0x75, 0xB0, b"x" * MOST_TAIL_BYTES), "after content of"),
        (DURABLE + DATA + section(0x77, 0xB0, b"x"), "two kinds"),
        (DURABLE + DATA + b"junk", "section was expected"),
    ],
    ids=["cut short", "text that is none", "too much after it", "two kinds", "junk"],
)
def test_a_large_message_that_is_not_amqp_is_refused_and_on_no_queue(
    bench: Bench, encoded: bytes, says: str
) -> None:
    sender = Sender(bench)
    delivery = sender.send(encoded)
    condition = sender.link.remote_condition or delivery.remote.condition
    assert condition.name == "amqp:decode-error"
    assert says in condition.description
    assert len(bench.broker.queues["q"]) == 0


def test_a_peer_that_decides_before_it_has_all_of_a_message_gets_it_again(bench: Bench) -> None:
    Sender(bench).send(DURABLE + DATA)
    link = bench.receiver(credit=1)
    bench.to_broker()
    while link.current is None:  # as little as can be: the rest is not on its way yet
        bench.run_delayed()
        bench.step_to_client()
    assert link.current.partial
    link.current.update(proton.Delivery.ACCEPTED)
    bench.exchange()
    bench.run_delayed()
    assert len(bench.broker.queues["q"]) == 1
    assert bench.broker.metrics.accepted == 0
    assert bench.broker.queues["q"].delivery_count(1) == 1


def test_a_link_that_ends_in_the_middle_of_a_message_gives_it_back(bench: Bench) -> None:
    Sender(bench).send(DURABLE + DATA)
    link = bench.receiver(credit=1)
    bench.exchange()
    bench.run_delayed()
    link.close()
    bench.exchange()
    bench.run_delayed()
    assert bench.calls.messages.holders() == {}
    again = bench.session.receiver("again")
    again.source.address = "q"
    again.open()
    again.flow(1)
    whole = read(bench, again)
    assert whole.endswith(BODY[-1000:])


def test_a_browser_gets_a_copy_in_pieces_and_the_drain_ends_after_it(bench: Bench) -> None:
    Sender(bench).send(DURABLE + DATA)
    link = bench.receiver(distribution_mode=proton.Terminus.DIST_MODE_COPY)
    link.drain(5)
    assert read(bench, link) == DURABLE + DATA
    link.advance()
    bench.exchange()
    bench.run_delayed()
    bench.exchange()
    assert link.credit == 0
    assert len(bench.broker.queues["q"]) == 1
    assert bench.calls.messages.holders() == {}


def test_small_messages_behind_a_large_one_wait_for_their_turn(bench: Bench) -> None:
    sender = Sender(bench)
    sender.send(DURABLE + DATA)
    sender.send(proton.Message(body=b"small", durable=True).encode())
    link = bench.receiver(credit=2)
    assert read(bench, link).endswith(BODY[-1000:])
    link.advance()
    bench.exchange()
    assert len(received(link)) == 1


@pytest.mark.parametrize(
    "prefix",
    [b"", DURABLE, DURABLE + b"\x00\x53\x76\xd0", b"junk", DURABLE + DATA[:6]],
    ids=["nothing", "no body yet", "a sequence", "junk", "half a lead-in"],
)
def test_what_is_no_one_large_piece_of_content_is_taken_whole(prefix: bytes) -> None:
    assert long_content(prefix) is None
