"""Assemblies of AMQP 0-10: which frames may follow one another, and how much is taken."""

from __future__ import annotations

import pytest

from broker_shim.amqp_0_10.commands import ExecutionSync, MessageTransfer
from broker_shim.amqp_0_10.controls import ConnectionStartOk, SessionFlush
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.errors import LocalFramingError, RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import FIRST_FRAME, FIRST_SEGMENT, LAST_FRAME, LAST_SEGMENT, Frame
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment, Segment

CONTROL, COMMAND, HEADER, BODY = range(4)
METHOD = b"\x03\x01\x01\x00\x00\x00"
TRANSFER = Assembly(
    5,
    MessageTransfer("a", 1, 0),
    sync=True,
    header=HeaderSegment.of(MessageDeliveryProperties(routing_key="q"), MessageProperties()),
    body=BodySegment(bytes(10_000)),
)


def frame(kind: int, flags: int, payload: bytes = b"", channel: int = 1) -> Frame:
    return Frame(kind, flags, channel, payload)


def test_an_assembly_is_split_into_frames_and_put_together_again() -> None:
    frames = list(frames_of(TRANSFER, 4096))
    assert [(each.type, each.flags) for each in frames] == [
        (COMMAND, FIRST_SEGMENT | FIRST_FRAME | LAST_FRAME),
        (HEADER, FIRST_FRAME | LAST_FRAME),
        (BODY, LAST_SEGMENT | FIRST_FRAME),
        (BODY, LAST_SEGMENT),
        (BODY, LAST_SEGMENT | LAST_FRAME),
    ]
    reader, header, body = MethodReader(FramingLimits()), HeaderSegment(), BodySegment()
    began, *rest = [reader.take(each) for each in frames]
    assert began == Assembly(5, TRANSFER.method, sync=True, is_whole=False)
    for each in rest:
        assert isinstance(each, Frame)
        (header if each.type == HEADER else body).add(each)
    assert (header.is_complete, body.is_complete) == (True, True)
    assert header.delivery.routing_key == "q"
    assert body.payload == bytes(10_000)


def test_a_method_with_content_that_nobody_attached_says_that_more_comes() -> None:
    (alone,) = frames_of(Assembly(1, MessageTransfer("a", 1, 0), is_whole=False))
    assert alone.flags == FIRST_SEGMENT | FIRST_FRAME | LAST_FRAME
    (complete,) = frames_of(Assembly(1, ExecutionSync()))
    assert complete.is_last_of_assembly


def test_a_method_of_many_frames_is_complete_with_its_last_one() -> None:
    start_ok = ConnectionStartOk(None, "PLAIN", b"x" * 5_000, "en_US")
    reader = MethodReader(FramingLimits())
    found = [reader.take(each) for each in frames_of(Assembly(0, start_ok), 4096)]
    assert found == [None, Assembly(0, start_ok)]


def test_a_control_may_stand_between_the_frames_of_a_command() -> None:
    reader = MethodReader(FramingLimits())
    began, *rest = frames_of(TRANSFER, 4096)
    (control,) = frames_of(Assembly(5, SessionFlush(completed=True)))
    reader.take(began)
    for each in rest:
        assert reader.take(each) is each
        assert reader.take(control) == Assembly(5, SessionFlush(completed=True))


FF, LF, FS, LS = FIRST_FRAME, LAST_FRAME, FIRST_SEGMENT, LAST_SEGMENT


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([(HEADER, FS | FF | LF)], "does not begin with a method"),
        ([(BODY, LS | FF | LF)], "does not begin with a method"),
        ([(COMMAND, LS | FF | LF)], "does not begin with a method"),
        ([(COMMAND, FS | LF)], "without its first frame"),
        ([(COMMAND, FS | FF), (COMMAND, FS | FF)], "before the last one's end"),
        ([(COMMAND, FS | FF), (HEADER, FS | LF)], "before the last one's end"),
        ([(COMMAND, FS | FF), (COMMAND, LF)], "different segment flags"),
        ([(COMMAND, FS | FF | LF), (COMMAND, LS | FF | LF)], "may not follow"),
        ([(COMMAND, FS | FF | LF), (BODY, FF | LF), (HEADER, LS | FF | LF)], "may not follow"),
        ([(COMMAND, FS | FF | LF), (HEADER, FF | LF), (HEADER, LS | FF | LF)], "may not follow"),
        ([(COMMAND, FS | FF | LF), (HEADER, FS | FF | LF)], "may not follow"),
        ([(COMMAND, FS | FF | LF), (HEADER, LF)], "without its first frame"),
        ([(CONTROL, FS | FF | LF)], "more than one segment"),
    ],
)
def test_frames_out_of_order_end_the_connection(frames: list[tuple[int, int]], says: str) -> None:
    reader = MethodReader(FramingLimits())
    *before, last = [frame(kind, flags, METHOD) for kind, flags in frames]
    for each in before:
        reader.take(each)
    with pytest.raises(RemoteFramingError, match=says):
        reader.take(last)


@pytest.mark.parametrize(
    ("limits", "frames", "says"),
    [
        (FramingLimits(max_method_bytes=8), [(COMMAND, FS | FF, bytes(9))], "more than 8 bytes"),
        (
            FramingLimits(max_header_bytes=8),
            [(COMMAND, FS | FF | LF, METHOD), (HEADER, FF, bytes(9))],
            "more than 8 bytes",
        ),
        (
            FramingLimits(max_assembly_bytes=100),
            [(COMMAND, FS | FF | LF, METHOD), (BODY, LS | FF, bytes(100))],
            "100 bytes in one assembly",
        ),
        (
            FramingLimits(max_assembly_bytes=100),
            [(COMMAND, FS | FF | LF, METHOD), (BODY, LS | FF, b""), *[(BODY, LS, b"")] * 6],
            "100 bytes in one assembly",
        ),
    ],
)
def test_a_command_without_end_ends_its_session(
    limits: FramingLimits, frames: list[tuple[int, int, bytes]], says: str
) -> None:
    reader = MethodReader(limits)
    *before, last = [frame(*each) for each in frames]
    for each in before:
        reader.take(each)
    with pytest.raises(RemoteCommandError, match=says) as refused:
        reader.take(last)
    assert refused.value.code == 506


def test_a_control_without_end_ends_the_connection() -> None:
    with pytest.raises(RemoteFramingError, match="more than 8 bytes"):
        MethodReader(FramingLimits(max_method_bytes=8)).take(frame(CONTROL, FS | LS | FF, bytes(9)))


def test_the_rest_of_what_is_dropped_is_no_error_however_long_and_leads_to_nothing() -> None:
    reader = MethodReader(FramingLimits(max_assembly_bytes=100))
    reader.take(frame(COMMAND, FS | FF | LF, METHOD))
    reader.drop(1)
    for each in [frame(BODY, LS | FF, bytes(100)), *[frame(BODY, LS, bytes(100))] * 3]:
        assert reader.take(each) is None
    assert reader.take(frame(BODY, LS | LF)) is None
    alone = frame(COMMAND, FS | LS | FF | LF, METHOD)
    assert reader.take(alone) == Assembly(1, ExecutionSync())
    reader.drop(1)  # between two commands there is nothing to drop
    assert reader.take(alone) == Assembly(1, ExecutionSync())


def test_half_a_method_that_is_dropped_is_forgotten() -> None:
    reader = MethodReader(FramingLimits())
    reader.take(frame(COMMAND, FS | LS | FF, METHOD[:3]))
    reader.drop(1)
    assert reader.take(frame(COMMAND, FS | LS | LF, METHOD[3:])) is None
    with pytest.raises(RemoteFramingError):
        reader.take(frame(COMMAND, FS | LS | LF, METHOD[3:]))


def test_a_segment_takes_only_its_own_frames() -> None:
    segment = Segment(BODY)
    with pytest.raises(LocalFramingError):
        segment.add(frame(HEADER, FF))
    segment.add(frame(BODY, FF | LF, b"a"))
    with pytest.raises(LocalFramingError):
        segment.add(frame(BODY, LF, b"b"))


def test_a_header_that_is_none_ends_the_session_of_who_asks_for_it() -> None:
    with pytest.raises(RemoteCommandError, match="a message's header") as refused:
        _ = HeaderSegment(b"\x00\x00\x00\xff").delivery
    assert refused.value.code == 531
