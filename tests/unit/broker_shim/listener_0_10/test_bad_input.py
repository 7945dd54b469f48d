"""What a peer does wrong ends its session or its connection by its code, and harms nobody else."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from broker_shim.amqp_0_10.commands import (
    ExchangeBind,
    ExecutionException,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    SessionAttach,
    SessionAttached,
    SessionCompleted,
    SessionDetached,
    SessionFlush,
    SessionRequestTimeout,
)
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.frames import (
    ALONE,
    FIRST_FRAME,
    FIRST_SEGMENT,
    PROTOCOL_HEADER,
    Frame,
)
from broker_shim.framing.segments import HeaderSegment
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content

FRAMING, CONTROL, COMMAND, BODY = 501, 0, 1, 3


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010(settings=BrokerSettings(max_header_bytes=4_096, max_message_bytes=100_000))
    yield it
    it.close()


@pytest.fixture
def other(bench: Bench010) -> Iterator[Client010]:
    """Whoever else is there goes on."""
    it = bench.opened()
    yield it
    assert it.sync()


def frame_header(flags: int, kind: int, size: int, track: int, zero: int = 0) -> bytes:
    return struct.pack(">BBHBBHI", flags, kind, size, zero, track, 1, zero)


def bad_client(bench: Bench010) -> Client010:
    it = bench.client()
    it.open()
    it.attach(b"bad")
    return it


def nested(depth: int) -> bytes:
    """A map in a map in a map, as queue.declare's arguments."""
    encoded = b"\0\0\0\0"
    for _ in range(depth):
        entry = b"\x01k\xa8" + struct.pack(">I", len(encoded)) + encoded
        encoded = struct.pack(">I", 1) + entry
    arguments = struct.pack(">I", len(encoded)) + encoded
    return b"\x08\x01\x01\x00" + b"\x41\x00" + b"\x01n" + arguments


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame_header(ALONE, COMMAND, 11, 1), FRAMING),
        (frame_header(ALONE | 0x80, COMMAND, 12, 1), FRAMING),
        (frame_header(ALONE, 4, 12, 1), FRAMING),
        (frame_header(ALONE, COMMAND, 12, 0), FRAMING),
        (frame_header(ALONE, COMMAND, 12, 1, zero=1), FRAMING),
        (Frame(BODY, ALONE, 1, b"x").encoded, FRAMING),
        (Frame(COMMAND, FIRST_SEGMENT, 1, b"x").encoded, FRAMING),
        (Frame(CONTROL, FIRST_SEGMENT | FIRST_FRAME, 1, b"x").encoded, FRAMING),
        (Frame(CONTROL, ALONE, 1, b"\x02\xee").encoded, FRAMING),
        (Frame(CONTROL, ALONE, 1, b"\x02").encoded, FRAMING),
        (Frame(CONTROL, ALONE, 1, b"\x02\x0a\xff\xff").encoded, FRAMING),
        (Frame(CONTROL, ALONE, 7, b"\x01\x0a\x00\x00").encoded, FRAMING),
        (Frame(CONTROL, FIRST_SEGMENT | FIRST_FRAME | 4, 1, bytes(5_000)).encoded, FRAMING),
    ],
)
def test_what_is_no_frame_or_no_control_ends_the_connection(
    bench: Bench010, other: Client010, sent: bytes, code: int
) -> None:
    client = bad_client(bench)
    client.write(sent)
    bench.run()
    (close,) = client.of(ConnectionClose)
    assert close.reply_code == code
    assert client.connection.is_over
    assert len(other.of(ConnectionOpenOk)) == 1


def test_what_is_no_frame_ends_nothing_that_came_before_it_and_waits(
    bench: Bench010, other: Client010
) -> None:
    client = bad_client(bench)
    sent = content("q")
    frames = [
        frame.encoded
        for _ in range(3)
        for frame in frames_of(Assembly(1, MessageTransfer("", 1, 0), **sent), 4_096)
    ]
    client.connection.receive(b"".join(frames), 1)
    assert client.connection.has_more
    for piece in (bytes(12), frames[0]):
        client.connection.receive(piece, 1)
    bench.run()
    (close,) = client.of(ConnectionClose)
    assert close.reply_code == FRAMING
    assert len(bench.broker.queues["q"]) == 3


def test_a_large_frame_may_come_at_once_with_what_opens_the_connection(bench: Bench010) -> None:
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    client.say(ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"), 0)
    client.say(ConnectionTuneOk(200, 65_535, 0), 0)
    client.say(ConnectionOpen(""), 0)
    client.say(SessionAttach(b"session"))
    for frame in frames_of(
        Assembly(1, MessageTransfer("", 1, 0), **content("q", bytes(9_000))), 65_535
    ):
        client.write(frame.encoded)
    bench.run()
    assert len(bench.broker.queues["q"]) == 1


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x04\xee\x01\x00", ExecutionErrorCode.COMMAND_INVALID),
        (b"\x0a\x01\x01\x00\x00\x00", ExecutionErrorCode.NOT_IMPLEMENTED),  # class file
        (b"\x08\x01\x01\x00\xff\xff", ExecutionErrorCode.ILLEGAL_ARGUMENT),
        (b"\x08\x01\x01\x00\x01\x00", ExecutionErrorCode.ILLEGAL_ARGUMENT),
        (b"\x08", ExecutionErrorCode.COMMAND_INVALID),
        (nested(40), ExecutionErrorCode.ILLEGAL_ARGUMENT),
        (nested(4), None),
    ],
)
@pytest.mark.usefixtures("other")
def test_what_is_no_command_ends_the_session(
    bench: Bench010, sent: bytes, code: int | None
) -> None:
    client = bad_client(bench)
    client.write(Frame(COMMAND, ALONE, 1, sent).encoded)
    bench.run()
    told = [int(each.error_code) for each in client.of(ExecutionException)]
    assert client.of(ConnectionClose) == []
    if code is None:
        assert set(told) <= {531}
        return
    assert told == [code]
    assert isinstance(client.told[-1], SessionDetached)


@pytest.mark.usefixtures("other")
def test_an_assembly_without_end_ends_its_session(bench: Bench010) -> None:
    client = bad_client(bench)
    transfer = Assembly(1, MessageTransfer("", 1, 0), is_whole=False, **content("q", b""))
    for frame in frames_of(transfer, 4_096):
        client.write(frame.encoded)
    flags = 4
    client.write(Frame(BODY, flags | FIRST_FRAME, 1, bytes(4_000)).encoded)
    for _ in range(50):
        client.write(Frame(BODY, flags, 1, bytes(4_000)).encoded)
    bench.run()
    assert [int(each.error_code) for each in client.of(ExecutionException)] == [506]
    assert client.of(ConnectionClose) == []


@pytest.mark.usefixtures("other")
def test_frames_without_content_do_not_go_on_for_ever(bench: Bench010) -> None:
    client = bad_client(bench)
    client.write(Frame(COMMAND, FIRST_SEGMENT | 4 | FIRST_FRAME, 1, b"").encoded)
    for _ in range(10_000):
        client.write(Frame(COMMAND, FIRST_SEGMENT | 4, 1, b"").encoded)
    bench.run()
    assert len(client.of(ExecutionException)) == 1


def test_messages_that_are_begun_in_many_sessions_and_never_ended_are_given_up() -> None:
    settings = BrokerSettings(max_unfinished_bytes=400_000, max_message_bytes=300_000)
    bench = Bench010(settings=settings)
    client = bench.client()
    client.open()
    for channel in range(1, 5):
        client.say(SessionAttach(b"s%d" % channel), channel)
        transfer = Assembly(channel, MessageTransfer("", 1, 0), is_whole=False, **content("q", b""))
        for frame in frames_of(transfer, 4_096):
            client.write(frame.encoded)
        for number in range(4):
            flags = 4 if number else 4 | FIRST_FRAME
            client.write(Frame(BODY, flags, channel, bytes(40_000)).encoded)
    bench.run()
    assert [int(each.error_code) for each in client.of(ExecutionException)] == [506, 506]
    assert 0 < bench.broker.unfinished.total_bytes <= 400_000
    client.lose()
    assert bench.broker.unfinished.total_bytes == 0
    bench.close()


def test_as_many_sessions_are_attached_as_the_settings_say_and_a_flood_of_them_ends() -> None:
    bench = Bench010(settings=BrokerSettings(max_sessions=300))
    client = bench.client()
    client.open()
    for channel in range(201):
        client.say(SessionAttach(b"s%d" % channel), channel)
    bench.run()
    assert len(client.of(SessionAttached)) == 201
    client.say(SessionAttach(b"one more"), 65_535)
    bench.run()
    assert client.of(ConnectionClose)[0].reply_code == FRAMING
    assert len(bench.host._sessions) == 0
    bench.close()


@pytest.mark.usefixtures("other")
def test_many_ranges_on_many_deliveries_are_quick(bench: Bench010) -> None:
    client = bad_client(bench)
    client.subscribe("q")
    for _ in range(100):
        client.say(MessageTransfer("", 1, 0), **content("q"))
    bench.run()
    client.do(MessageAccept(tuple((number, number) for number in range(0, 600, 2))))
    assert client.sync()
    assert len(bench.broker.queues["q"]) == 50


@pytest.mark.parametrize(
    "ranges", [((5, 3),), ((0, 5), (5, 9)), ((3, 4), (0, 1)), ((0, 0xFFFFFFFF),)]
)
@pytest.mark.usefixtures("other")
def test_completed_ranges_that_cannot_be_end_the_session(
    bench: Bench010, ranges: tuple[tuple[int, int], ...]
) -> None:
    client = bad_client(bench)
    client.do(SessionCompleted(ranges))
    assert client.told[-1] == SessionDetached(b"bad", 4)


@pytest.mark.usefixtures("other")
def test_commands_that_wait_for_wiring_hold_the_connection_back(bench: Bench010) -> None:
    client = bad_client(bench)
    client.say(QueueDeclare("new"))
    for _ in range(3):
        client.say(ExchangeBind("new", "amq.topic", "k"))
    client.say(MessageTransfer("", 1, 0), **content("new", bytes(50_000)))
    bench.step()
    assert client.connection.waiting_bytes > 50_000
    bench.run()
    assert client.connection.waiting_bytes == 0
    client.do(SessionFlush(completed=True))
    assert client.completed == ((0, 4),)


def struct32(code: int, content: bytes) -> bytes:
    return struct.pack(">IH", len(content) + 2, code) + content


@pytest.mark.parametrize(
    "header",
    [
        struct32(0x401, b"\x00"),  # flags of one byte, where delivery-properties have two
        struct32(0x401, b"\x00\x00\x00\x00"),  # and of four
        struct32(0x401, b"\xff\xff"),  # reserved ones
        struct32(0x403, b"\x01\x00\x00"),  # a content-length cut short
        struct32(0x403, b"\x00"),
        b"\x00\x00\x00\x01\x04",
        b"\xff\xff\xff\xff\x04\x01",
    ],
)
@pytest.mark.parametrize("body", [b"body", b""])
@pytest.mark.usefixtures("other")
def test_a_struct_with_the_wrong_pack_ends_its_session(
    bench: Bench010, header: bytes, body: bytes
) -> None:
    client = bad_client(bench)
    parts = content("q", body)
    client.say(MessageTransfer("", 1, 0), **parts)
    client.say(MessageTransfer("", 1, 0), header=HeaderSegment(header), body=parts["body"])
    client.say(MessageTransfer("", 1, 0), **parts)
    bench.run()
    assert [int(each.error_code) for each in client.of(ExecutionException)] == [531]
    assert client.of(ExecutionException)[0].command_id == 1
    assert client.of(ConnectionClose) == []
    assert len(bench.broker.queues["q"]) == 1  # what came before it is stored, what came after lost


def with_all_channels(bench: Bench010) -> Client010:
    """A client that agrees on as many channels as there are."""
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    client.say(ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"), 0)
    client.say(ConnectionTuneOk(65_534, 65_535, 0), 0)
    client.say(ConnectionOpen(""), 0)
    return client


def test_the_last_of_65_535_channels_may_be_used_and_none_after_what_was_agreed() -> None:
    bench = Bench010(settings=BrokerSettings(max_sessions=65_535))
    client, other = with_all_channels(bench), bench.opened()
    for channel in (0, 1, 65_533, 65_534):
        client.say(SessionAttach(b"s%d" % channel), channel)
    bench.run()
    assert len(client.of(SessionAttached)) == 4
    client.say(SessionAttach(b"s65535"), 65_535)
    bench.run()
    assert client.of(ConnectionClose)[0].reply_code == FRAMING
    assert other.sync()
    bench.close()


@pytest.mark.slow
def test_65_535_sessions_of_one_connection_harm_nobody_and_end_with_it() -> None:
    """What a frame or a session's end costs does not grow with how many there are."""
    bench = Bench010(settings=BrokerSettings(max_sessions=65_535))
    client, other = with_all_channels(bench), bench.opened()
    bench.run()

    def attach(channels: range) -> bytes:
        for channel in channels:
            client.say(SessionAttach(b"s%d" % channel), channel)
            if channel >= 60_000:
                client.say(SessionRequestTimeout(60), channel)
        said, client._to_send = bytes(client._to_send), bytearray()
        client.connection.receive(said)
        answers = client.connection.output()
        client.connection.unsent(0)
        return answers

    answers = [attach(range(first, first + 5_000)) for first in range(0, 60_000, 5_000)]
    assert len(set(map(len, answers))) <= 5, "each was attached"
    assert other.sync()
    tracemalloc.start()
    attach(range(60_000, 65_535))
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traced_bytes < 5_535 * 8_192
    assert client.connection.is_open
    assert len(bench.host._sessions) == 65_536
    client.lose()
    assert len(bench.host._sessions) == 101, "100 of them wait for their client"
    assert other.sync()
    bench.close()


BEFORE_OPEN = [
    Frame(COMMAND, FIRST_SEGMENT | 4 | FIRST_FRAME, 0, b"x"),
    Frame(CONTROL, FIRST_SEGMENT | 4 | FIRST_FRAME, 1, b"x"),
    Frame(BODY, 4 | FIRST_FRAME, 5, b"x"),
]


@pytest.mark.parametrize("frame", BEFORE_OPEN)
def test_before_open_only_controls_of_channel_0_may_come(bench: Bench010, frame: Frame) -> None:
    client = bench.client()
    client.write(PROTOCOL_HEADER + frame.encoded)
    bench.run()
    assert [each.reply_code for each in client.of(ConnectionClose)] == [FRAMING]
    assert client.connection.is_over


def test_before_open_a_control_has_4_kib_at_most(bench: Bench010) -> None:
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    for number in range(3):
        flags = FIRST_SEGMENT | 4 | (0 if number else FIRST_FRAME)
        client.write(Frame(CONTROL, flags, 0, bytes(2_000)).encoded)
    bench.run()
    assert [each.reply_code for each in client.of(ConnectionClose)] == [FRAMING]


def test_before_open_a_frame_that_is_announced_larger_is_not_waited_for(bench: Bench010) -> None:
    client = bench.client()
    client.write(PROTOCOL_HEADER + Frame(CONTROL, 15, 0, bytes(5_000)).encoded[:100])
    bench.run()
    assert [each.reply_code for each in client.of(ConnectionClose)] == [FRAMING]


def endless_commands(client: Client010, channels: range, pieces: int) -> None:
    """Begin a command on each channel, in pieces, and never end it."""
    for number in range(pieces):
        flags = FIRST_SEGMENT | 4 | (0 if number else FIRST_FRAME)
        for channel in channels:
            client.write(Frame(COMMAND, flags, channel, bytes(4_000)).encoded)


def test_commands_that_are_begun_on_many_channels_and_never_ended_are_given_up() -> None:
    settings = BrokerSettings(max_unfinished_bytes=400_000, max_message_bytes=300_000)
    bench = Bench010(settings=settings)
    client, bystander = bench.client(), bench.opened()
    client.open()
    endless_commands(client, range(1, 5), 20)
    bench.run()
    assert 320_000 < bench.broker.unfinished.total_bytes <= 400_000
    endless_commands(client, range(5, 9), 20)
    bench.run()
    assert "commands of this connection" in client.of(ConnectionClose)[0].reply_text
    assert bench.broker.unfinished.total_bytes == 0
    assert bystander.sync()
    bench.close()


def test_of_commands_of_all_connections_that_never_end_the_largest_goes() -> None:
    settings = BrokerSettings(max_unfinished_bytes_in_all=400_000, max_message_bytes=300_000)
    bench = Bench010(settings=settings)
    large, small = bench.client(), bench.client()
    for client, channels in ((large, range(1, 4)), (small, range(1, 3))):
        client.open()
        endless_commands(client, channels, 25)
        bench.run()
    assert [bool(each.of(ConnectionClose)) for each in (large, small)] == [True, False]
    small.lose()
    assert bench.broker.unfinished.total_bytes == 0
    bench.close()


def test_headers_that_are_begun_and_never_ended_count(bench: Bench010) -> None:
    client = bad_client(bench)
    transfer = Assembly(1, MessageTransfer("", 1, 0), is_whole=False)
    for frame in frames_of(transfer, 4_096):
        client.write(frame.encoded)
    for number in range(1_000):
        flags = 0 if number else FIRST_FRAME
        client.write(Frame(COMMAND + 1, flags, 1, b"x").encoded)
    bench.run()
    assert bench.broker.unfinished.total_bytes > 20_000  # each piece is an object of its own
    client.lose()
    assert bench.broker.unfinished.total_bytes == 0


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        ({str(number): None for number in range(1_024)}, True),
        ({str(number): None for number in range(1_025)}, False),
        ({"nested": [[1, 2, 3]] * 500}, False),
    ],
)
def test_a_header_has_as_many_items_as_one_of_amqp_1_0(
    headers: dict[str, Any], *, is_taken: bool
) -> None:
    """Of four bytes each they would take the loop for a third of a second."""
    bench = Bench010()
    client, bystander = bench.opened(), bench.client()
    bystander.open()
    bystander.attach(b"other")
    client.send("q", application_headers=headers)
    codes = [int(each.error_code) for each in client.of(ExecutionException)]
    assert codes == ([] if is_taken else [506])
    assert len(bench.broker.queues["q"]) == is_taken
    assert bystander.sync()
    bench.close()
