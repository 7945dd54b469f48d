"""What no library would send, to a real broker: the offender ends, and nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
)
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    ProtocolHeader,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.codec.values import Described
from tests.support.amqp.amqp_1_0 import attach, flow
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess
from tests.support.system.raw_peer import Bystander, RawPeer, condition, resident_bytes

pytestmark = [pytest.mark.system, pytest.mark.slow]

MIB = 1 << 20
MOST_MESSAGE_BYTES, MOST_UNFINISHED_BYTES = 2 * MIB, 3 * MIB
HANDSHAKE_S = 0.5
SETTINGS = f"""
[store]
max_message_bytes = {MOST_MESSAGE_BYTES}
[broker]
max_links = 8
max_sessions = 6
credit = 10
max_unfinished_bytes = {MOST_UNFINISHED_BYTES}
handshake_timeout_s = {HANDSHAKE_S}
idle_timeout_s = 60.0
"""
MESSAGE = b"\x00Sw\xa1\x05hello"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    file = tmp_path_factory.mktemp("bad") / "sparkstore.toml"
    file.write_text(SETTINGS)
    started = BrokerProcess("--memory", "--listen", "127.0.0.1:0", "--config", str(file))
    yield started
    assert started.terminate() == 0
    assert "Traceback" not in started.log


@pytest.fixture(scope="module")
def bystanders(broker: BrokerProcess) -> Iterator[Bystander]:
    bystander = Bystander(broker)
    yield bystander
    bystander.end()


@pytest.fixture(autouse=True)
def nobody_else_notices(bystanders: Bystander) -> Iterator[None]:
    """A client that was there before goes on meanwhile, and after."""
    yield
    bystanders.wait_for_a_round()


def begin(**fields: Any) -> Begin:
    told = {"next_outgoing_id": 0, "incoming_window": 100, "outgoing_window": 100, **fields}
    return Begin(**told)


def transfer(number: int = 0, handle: int = 0, **fields: Any) -> TransferFrame:
    told = {"delivery_tag": bytes([number]), "message_format": 0, "more": False, **fields}
    return TransferFrame(handle, number, **told)


# ------------------------------------------------------------------------- what ends a connection


def raw_frame(size: int, doff: int = 2, kind: int = 0, rest: bytes = b"") -> bytes:
    return size.to_bytes(4, "big") + bytes((doff, kind, 0, 0)) + rest


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def described(depth: int) -> bytes:
    """An open whose container id is described, described, described."""
    body = b"\x00\x53\x10\xd0" + (depth * 3 + 5).to_bytes(4, "big") + (1).to_bytes(4, "big")
    body += b"\x00\x53\x01" * depth + b"\x40"
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def lists(depth: int) -> bytes:
    """An open whose container id is a list in a list in a list."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + value
    body = b"\x00\x53\x10\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + value
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


FRAMING, DECODE = "amqp:connection:framing-error", "amqp:decode-error"
ILLEGAL, NOT_ALLOWED = "amqp:illegal-state", "amqp:not-allowed"
INSTEAD_OF_OPEN = {
    "a frame of 4 GiB": (raw_frame(0xFFFF_FFFF), FRAMING),
    "a frame of 1 MiB": (raw_frame(MIB, rest=bytes(1000)), FRAMING),
    "a frame shorter than its header": (raw_frame(7), FRAMING),
    "a header longer than its frame": (raw_frame(8, doff=255), FRAMING),
    "a header shorter than a header": (raw_frame(8, doff=1), FRAMING),
    "a frame of a kind of nobody": (raw_frame(8, kind=9), FRAMING),
    "a SASL frame": (encoded_frame(SaslInit("PLAIN"), kind=SASL_FRAME), FRAMING),
    "zeroes": (bytes(64), FRAMING),
    "a performative of nobody": (raw_frame(12, rest=b"\x00\x53\x7f\x45"), DECODE),
    "bytes that are no performative": (raw_frame(12, rest=b"\xff\xff\xff\xff"), DECODE),
    "half a performative": (raw_frame(11, rest=b"\x00\x53\x10"), DECODE),
    "1,000 descriptors": (described(1_000), DECODE),
    "1,000 lists in lists": (lists(1_000), DECODE),
    "a list of 4,294,967,295 fields": (
        raw_frame(20, rest=b"\x00\x53\x10\xd0\x00\x00\x00\x04\xff\xff\xff\xff"),
        DECODE,
    ),
    "a begin": (encoded_frame(begin()), ILLEGAL),
    "a transfer": (encoded_frame(transfer()), ILLEGAL),
    "a section of a message": (encoded_frame(Source("q")), NOT_ALLOWED),
}


@pytest.mark.parametrize(
    ("encoded", "expected"), INSTEAD_OF_OPEN.values(), ids=INSTEAD_OF_OPEN.keys()
)
def test_what_is_no_open_closes_the_connection(
    broker: BrokerProcess, encoded: bytes, expected: str
) -> None:
    with RawPeer(broker) as peer:
        peer.write(AMQP_HEADER.encoded() + encoded)
        peer.header()
        assert condition(peer.until(Close)) == expected
        assert peer.is_hung_up_on()


ON_AN_OPEN_CONNECTION: dict[str, tuple[Callable[[RawPeer], None], str]] = {
    "open again": (lambda peer: peer.say(Open("again")), ILLEGAL),
    "channel 65,535": (lambda peer: peer.say(begin(), channel=65_535), FRAMING),
    "a channel too many": (lambda peer: peer.say(begin(), channel=6), FRAMING),
    "a begin that answers nobody": (
        lambda peer: peer.say(begin(remote_channel=0), channel=1),
        "amqp:invalid-field",
    ),
    "begin twice": (lambda peer: peer.say(begin()), ILLEGAL),
    "an attach where nothing was begun": (lambda peer: peer.say(attach(), channel=1), ILLEGAL),
    "an end where nothing was begun": (lambda peer: peer.say(End(), channel=1), ILLEGAL),
    "an outcome instead of a performative": (lambda peer: peer.say(Accepted()), NOT_ALLOWED),
    "a handle too many": (lambda peer: peer.say(attach(8)), FRAMING),
}


@pytest.mark.parametrize(
    ("offend", "expected"), ON_AN_OPEN_CONNECTION.values(), ids=ON_AN_OPEN_CONNECTION.keys()
)
def test_what_breaks_a_connection_closes_it(
    broker: BrokerProcess, offend: Callable[[RawPeer], None], expected: str
) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun()
        offend(peer)
        assert condition(peer.until(Close)) == expected
        assert peer.is_hung_up_on()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"AMQP\x01\x01\x00\x0a" + bytes(20),
        ProtocolHeader(2).encoded(),
    ],
    ids=["HTTP", "TLS", "AMQP 0-10", "TLS within AMQP"],
)
def test_who_speaks_something_else_is_told_our_protocol_and_hung_up_on(
    broker: BrokerProcess, said: bytes
) -> None:
    with RawPeer(broker) as peer:
        peer.write(said)
        assert peer.header() == AMQP_HEADER
        assert peer.is_hung_up_on()


# ---------------------------------------------------------------------------- what ends a session

ON_A_SESSION: dict[str, tuple[Callable[[RawPeer], None], str]] = {
    "a handle twice": (
        lambda peer: peer.say(attach(0), attach(0)),
        "amqp:session:handle-in-use",
    ),
    "a transfer on no handle": (
        lambda peer: peer.transfer(transfer(handle=7), MESSAGE),
        "amqp:session:unattached-handle",
    ),
    "a flow on no handle": (
        lambda peer: peer.say(flow(7, 10)),
        "amqp:session:unattached-handle",
    ),
    "a detach on no handle": (
        lambda peer: peer.say(Detach(7)),
        "amqp:session:unattached-handle",
    ),
}


@pytest.mark.parametrize(("offend", "expected"), ON_A_SESSION.values(), ids=ON_A_SESSION.keys())
def test_what_breaks_a_session_ends_it_and_no_other(
    broker: BrokerProcess, offend: Callable[[RawPeer], None], expected: str
) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun(channel=1).begun()
        offend(peer)
        assert condition(peer.until(End)) == expected
        peer.say(attach(0, target=Target("q")), channel=1)
        assert peer.until(Attach).target is not None


def test_more_is_not_remembered_of_a_peer_than_a_limit(broker: BrokerProcess) -> None:
    """A limit of links alone would not bound memory: an attach may be as large as a frame."""
    with RawPeer(broker) as peer:
        peer.opened()
        fat = {b"%03x" % n: None for n in range(4_096)}
        for channel in range(6):
            peer.say(begin(), channel=channel)
            for handle in range(8):
                told = attach(handle, target=Target(f"fat.{channel}"), unsettled=fat)
                peer.say(told, channel=channel)
        peer.say(Close())
        assert condition(peer.until(End)) == "amqp:resource-limit-exceeded"


# ------------------------------------------------------------------------------- what ends a link


def encoded_transfer(number: int) -> bytes:
    return transfer_frame(0, transfer(number), len(MESSAGE)) + MESSAGE


def test_a_transfer_without_credit_detaches_the_link(broker: BrokerProcess) -> None:
    """The credit is 10; the broker reads all that is written at once before it gives more."""
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("no.credit")
        first, rest = encoded_transfer(0), [encoded_transfer(number) for number in range(1, 40)]
        peer.write(first + b"".join(rest))
        assert condition(peer.until(Detach)) == "amqp:link:transfer-limit-exceeded"


def test_a_transfer_to_a_link_that_sends_is_not_allowed(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun()
        peer.say(attach(0, is_receiver=True, source=Source("other.way")))
        peer.until(Attach)
        peer.transfer(transfer(), MESSAGE)
        ended = peer.next()
        while not isinstance(ended, Detach | End):
            ended = peer.next()
        assert condition(ended) == NOT_ALLOWED


def never_ending(peer: RawPeer, handle: int, total: int) -> None:
    """Send so much of one delivery, which goes on after it."""
    size = 32_000
    start = b"\x00\x53\x77\xb0" + (1 << 30).to_bytes(4, "big")
    first = TransferFrame(handle, handle, bytes([handle]), 0, more=True)
    peer.transfer(first, start + bytes(size))
    for _ in range(total // size):
        peer.transfer(TransferFrame(handle, more=True), bytes(size))


def test_a_delivery_that_never_ends_is_cut_where_it_is_too_large(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("never.ending")
        before = resident_bytes(broker)
        never_ending(peer, 0, 2 * MOST_MESSAGE_BYTES)
        assert condition(peer.until(Detach)) == "amqp:link:message-size-exceeded"
        assert resident_bytes(broker) - before < 3 * MOST_MESSAGE_BYTES
    assert is_empty(broker.url, "never.ending")


def test_many_deliveries_that_never_end_are_cut_together(broker: BrokerProcess) -> None:
    """Each is small enough; what they take together has a limit, too."""
    with RawPeer(broker) as peer:
        peer.opened().begun()
        for handle in range(8):
            peer.sending("together", handle)
        for handle in range(8):
            never_ending(peer, handle, MIB)
        assert condition(peer.until(Detach)) == "amqp:resource-limit-exceeded"
    assert is_empty(broker.url, "together")


REFUSED_ATTACHES = {
    "no terminus at all": attach(source=None, target=None),
    "no terminus at all, as a receiver": attach(is_receiver=True, source=None, target=None),
    "a source without an address": attach(is_receiver=True, source=Source()),
    "an address with half a name": attach(target=Target("address::")),
}


@pytest.mark.parametrize("told", REFUSED_ATTACHES.values(), ids=REFUSED_ATTACHES.keys())
def test_an_attach_that_names_nothing_is_refused_and_the_session_goes_on(
    broker: BrokerProcess, told: Attach
) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun()
        peer.say(told)
        answer = peer.until(Attach)
        assert (answer.target if answer.role else answer.source) is None
        assert condition(peer.until(Detach)) == "amqp:invalid-field"
        peer.say(Detach(0, closed=True))
        peer.sending("after.it")


def test_a_filter_of_nobody_is_left_out_of_the_answer(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun()
        filters = {"made:up": Described("made:up:filter", "x"), "other": Described(77, [1, 2])}
        peer.say(attach(is_receiver=True, source=Source("filtered", filter=filters)))
        answer = peer.until(Attach)
        assert answer.source.address == "filtered"
        assert not answer.source.filter


def test_a_selector_that_is_none_is_refused(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun()
        selector = Described("apache.org:selector-filter:string", "a = (" * 1000)
        peer.say(attach(is_receiver=True, source=Source("q", filter={"s": selector})))
        assert condition(peer.until(Detach)) == "amqp:invalid-field"


def test_dispositions_of_what_nobody_knows_are_read_past(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("disposed")
        everything = Disposition(role=True, first=0, last=0xFFFF_FFFF, settled=True)
        peer.say(everything, Disposition(role=False, first=5, last=3, settled=True))
        peer.transfer(transfer(), MESSAGE)
        assert isinstance(peer.until(Disposition).state, Accepted)


def test_a_message_that_is_none_is_rejected_and_the_link_goes_on(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("rejected")
        peer.transfer(transfer(0), b"\x00\x53\x70" + b"\xc0" * 20)
        assert isinstance(peer.until(Disposition).state, Rejected)
        peer.transfer(transfer(1), MESSAGE)
        assert isinstance(peer.until(Disposition).state, Accepted)


def test_two_containers_of_one_name_are_two_clients(broker: BrokerProcess) -> None:
    with RawPeer(broker) as first, RawPeer(broker) as second:
        first.opened("same").begun().sending("one.name", 0)
        second.opened("same").begun().sending("one.name", 1)
        for number in range(3):
            for handle, peer in enumerate((first, second)):
                peer.transfer(transfer(number, handle), MESSAGE)
                assert isinstance(peer.until(Disposition).state, Accepted)


# ------------------------------------------------------------------------------- who says nothing


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"AMQP",
        AMQP_HEADER.encoded(),
        AMQP_HEADER.encoded() + encoded_frame(Open("slow"))[:-1],
        SASL_HEADER.encoded(),
        SASL_HEADER.encoded() + encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME)[:5],
    ],
    ids=["nothing", "half a header", "a header", "half an open", "stuck SASL", "half a SASL frame"],
)
def test_who_does_not_open_in_time_is_hung_up_on(broker: BrokerProcess, said: bytes) -> None:
    began_s = time.monotonic()
    with RawPeer(broker) as peer:
        peer.write(said)
        assert peer.is_hung_up_on()
    assert time.monotonic() - began_s > HANDSHAKE_S * 0.9


def test_sasl_answers_each_thing_in_its_turn_only(broker: BrokerProcess) -> None:
    with RawPeer(broker) as peer:
        peer.write(SASL_HEADER.encoded() + encoded_frame(Open("early")))
        assert peer.header() == SASL_HEADER
        assert isinstance(peer.next(), SaslMechanisms)
        assert peer.is_hung_up_on()
    with RawPeer(broker) as peer:
        init = encoded_frame(SaslInit("GSSAPI", b"x"), kind=SASL_FRAME)
        peer.write(SASL_HEADER.encoded() + init)
        peer.header()
        assert peer.until(SaslOutcome).code == 1
        assert peer.is_hung_up_on()


# ----------------------------------------------------------------------------------- all together


@pytest.mark.parametrize(
    ("warm_up", "rounds"), [(5, 20), pytest.param(150, 150, marks=pytest.mark.thorough)]
)
def test_memory_is_flat_under_all_of_it(broker: BrokerProcess, warm_up: int, rounds: int) -> None:
    """It grows until the collector comes for the first time, and then no more.

    A connection that is over leaves 8 KiB of cycles, and the collector comes after some 4,000 of
    them (`tune_process`): the long run is past that, the short one before it.
    """
    for _ in range(warm_up):
        everything(broker)
    before = resident_bytes(broker)
    for _ in range(rounds):
        everything(broker)
    assert resident_bytes(broker) - before < 8 * MIB
    assert is_empty(broker.url, "half")


def everything(broker: BrokerProcess) -> None:
    """Every offence once: 32 connections."""
    for encoded, _ in INSTEAD_OF_OPEN.values():
        with RawPeer(broker) as peer:
            peer.write(AMQP_HEADER.encoded() + encoded)
            assert peer.is_hung_up_on()
    for offend, _ in (*ON_AN_OPEN_CONNECTION.values(), *ON_A_SESSION.values()):
        with RawPeer(broker) as peer:
            peer.opened().begun()
            offend(peer)
            assert peer.next() is not None
    with RawPeer(broker) as peer:  # hangs up amid a delivery
        peer.opened().begun().sending("half")
        never_ending(peer, 0, MIB)
