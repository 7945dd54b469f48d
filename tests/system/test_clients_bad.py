"""Messages that no library writes, names that are too long, and what the five clients see of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Data, Delivery, Described, Handler, Message, symbol, ubyte, uint, ulong

from tests.support.system.client_cases import text
from tests.support.system.client_programs import CLIENTS, Programs, programs
from tests.support.system.clients import TIMEOUT_S, connected, is_empty, send, take
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

PLAIN_AMQP = b"AMQP\x00\x01\x00\x00"
SENDER = False
DEPTH = 1000


def section(code: int, value: object) -> bytes:
    """A described value, as AMQP encodes it."""
    data = Data()
    data.put_object(Described(ulong(code), value))
    return bytes(data.encode())


BODY = section(0x77, "body")
REFUSED = {
    "two kinds of body": BODY + section(0x75, b"more"),
    "two values": BODY + BODY,
    "a header that is a map": section(0x70, {symbol("durable"): True}) + BODY,
    "durable is text": section(0x70, ["yes"]) + BODY,
    "a header after the properties": section(0x73, []) + section(0x70, []) + BODY,
    "a section of nobody": section(0x79, []) + BODY,
    "less than it claims": BODY[:-1],
    "more than it claims": BODY + b"more",
    "a size of 4 GiB": b"\x00\x53\x75\xb0\xff\xff\xff\xff" + bytes(100),
    "1,000 descriptors": b"\x00\x53\x77" + b"\x00\x53\x01" * DEPTH + b"\x40",
    "properties that are no message": b"no message",
    "nothing at all": b"",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    started = BrokerProcess("--memory", "--listen", "127.0.0.1:0")
    yield started
    started.terminate()
    assert "Traceback" not in started.log


@pytest.fixture(scope="module")
def connected_clients(broker: BrokerProcess) -> Iterator[Programs]:
    """The clients, each with a connection."""
    with programs(broker) as started:
        yield started


def outcome_of(connection: Any, sender: Any, encoded: bytes) -> Delivery:
    """Send these bytes as a message; the delivery once the broker has settled it."""
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(encoded)
    sender.link.advance()
    connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S)
    return delivery


@pytest.mark.parametrize("encoded", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_and_the_link_goes_on(broker: BrokerProcess, encoded: bytes) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender("refused")
        delivery = outcome_of(connection, sender, encoded)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:decode-error"
        sender.send(Message(id=1))
    assert [m.id for m in take(broker.url, "refused", 1)] == [1]
    assert is_empty(broker.url, "refused")


class Bytes(Handler):
    """The bytes of each message, as they came."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def on_delivery(self, event: Any) -> None:
        """Accept it."""
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.received.append(event.link.recv(delivery.pending) or b"")
            event.link.advance()
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()


def nested_maps(depth: int) -> bytes:
    """{"k": {"k": … "end"}}, in bytes: no library would write so many."""
    value = b"\xa1\x03end"
    for _ in range(depth):
        pair = b"\xa1\x01k" + value
        value = b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + pair
    return value


def entry(value: bytes) -> bytes:
    """A map of one key."""
    pair = b"\xa1\x01k" + value
    return b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + pair


DEEP = {
    "body": b"\x00\x53\x77" + nested_maps(DEPTH),
    "application property": b"\x00\x53\x74" + nested_maps(DEPTH) + BODY,
    "sequence": b"\x00\x53\x76\xd0"
    + (4 + len(nested_maps(DEPTH))).to_bytes(4, "big")
    + (1).to_bytes(4, "big")
    + nested_maps(DEPTH),
}


FIRST = b"\x00\x53\x70\xc0\x0a\x05\x42\x40\x40\x41\x70\x00\x00\x00\x00"
"""The header of a first delivery (3.2.1): not durable, first-acquirer, no failed delivery."""


@pytest.mark.parametrize("encoded", DEEP.values(), ids=DEEP)
def test_what_is_allowed_comes_out_byte_for_byte_behind_the_header_of_its_delivery(
    broker: BrokerProcess, encoded: bytes
) -> None:
    got = Bytes()
    with connected(broker.url) as connection:
        sender = connection.create_sender("deep")
        assert outcome_of(connection, sender, encoded).remote_state == Delivery.ACCEPTED
        receiver = connection.create_receiver("deep", credit=1, handler=got)
        connection.wait(lambda: bool(got.received), timeout=TIMEOUT_S)
        receiver.close()
    assert got.received == [FIRST + encoded]


def frame(performative: bytes, payload: bytes = b"", *, less: int = 0) -> bytes:
    """A frame on channel 0 that says that it is `less` bytes shorter than it is."""
    size = 8 + len(performative) + len(payload) - less
    return size.to_bytes(4, "big") + b"\x02\x00\x00\x00" + performative + payload


OPENING = b"".join(
    (
        PLAIN_AMQP,
        frame(section(0x10, ["raw", None, uint(4096)])),
        frame(section(0x11, [None, uint(0), uint(9), uint(9)])),
        frame(
            section(
                0x12,
                [
                    "l",
                    uint(0),
                    SENDER,
                    ubyte(0),
                    ubyte(0),
                    Described(ulong(0x28), []),
                    Described(ulong(0x29), ["claimed"]),
                    None,
                    None,
                    uint(0),
                ],
            )
        ),
    )
)
FLOW = b"\x00\x53\x13"
FLOW = b"\x00\x53\x13"
TRANSFER = section(0x14, [uint(0), uint(0), b"tag", uint(0), False, False])


def answer(broker: BrokerProcess, content: bytes) -> bytes:
    """What the broker says to these bytes, once there is credit, until it ends the connection."""
    said = b""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as peer:
        peer.sendall(OPENING)
        while FLOW not in said:
            said += peer.recv(4096)
        peer.sendall(content)
        while piece := peer.recv(4096):
            said += piece
    return said


def test_a_frame_that_is_larger_than_it_says_ends_its_connection_only(
    broker: BrokerProcess,
) -> None:
    send(broker.url, "claimed", Message(id=1))
    message = section(0x75, bytes(64))
    said = answer(broker, frame(TRANSFER, message, less=60))
    assert b"amqp:connection:framing-error" in said
    send(broker.url, "claimed", Message(id=2))
    assert [m.id for m in take(broker.url, "claimed", 2)] == [1, 2]
    assert is_empty(broker.url, "claimed")


def test_the_same_frames_with_their_true_sizes_are_a_message(broker: BrokerProcess) -> None:
    """So that the test above fails for the reason it names."""
    ending = frame(section(0x18, []))
    answer(broker, frame(TRANSFER, section(0x75, bytes(64))) + ending)
    assert [m.body for m in take(broker.url, "claimed", 1)] == [bytes(64)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_name_of_10000_characters_is_served_and_a_longer_one_refused(
    connected_clients: Programs, broker: BrokerProcess, client: str
) -> None:
    """A refusal reaches the program with its reason, and the connection goes on.

    That of fe2o3-amqp does so, too, but now and then the library ends its own session after a link
    that was refused ("The session stopped before the link was attached: Ended", where Ended is its
    word for what it did itself): so it gets a new one.
    """
    program = connected_clients[client]
    longest = client.ljust(10_000, "q")
    # fe2o3-amqp keeps the reason to itself.
    reason = "Illegal link state|10000 characters" if client == "fe2o3-amqp" else "10000 characters"
    for attempt in (program.send, program.open):
        with pytest.raises(AssertionError, match=reason):
            attempt(longest + "q")
    if client == "fe2o3-amqp":
        program.disconnect()
        program.connect(broker)
    assert program.send(longest, {"body": {"value": text("next")}}) == ["accepted"]
    assert program.take(longest)[0]["body"] == {"value": [*answered(client), "next"]}


def answered(client: str) -> list[str]:
    """The type that a client names for a string."""
    return ["string"] if client in {"proton", "jms", "fe2o3-amqp"} else ["text"]
