"""The chain of handlers: what is put together where, and what stands before the standard ones."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from broker_shim.amqp_0_10.commands import ExecutionSync, MessageTransfer
from broker_shim.amqp_0_10.controls import ConnectionHeartbeat, SessionFlush
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.errors import InvalidRequest
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import ALONE, Frame, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.handlers.add_ons import insertion_points
from broker_shim.handlers.connection_incoming import ConnectionIncoming
from broker_shim.handlers.frame_tracer import FrameTracer
from broker_shim.handlers.handler import AssemblyAddOn, AssemblyHandler, FrameAddOn
from broker_shim.handlers.handler_chain import Delayed, HandlerContext, InsertionPoints
from broker_shim.handlers.session_handlers import CommandHandler, SessionIncoming, SessionOutgoing


def transfer(body: bytes | None = b"content", *, region: str = "eu", channel: int = 3) -> Assembly:
    header = HeaderSegment.of(
        MessageDeliveryProperties(routing_key="q"),
        MessageProperties(application_headers={"region": region}),
    )
    content = None if body is None else BodySegment(body)
    return Assembly(channel, MessageTransfer("", 1, 0), header=header, body=content)


class SmallPeer:
    """All that a listener gives to the handlers: one session on channel 3, which counts."""

    def __init__(self, points: InsertionPoints, limits: FramingLimits) -> None:
        self.invoked: list[Assembly] = []
        self.controls: list[Any] = []
        self.failed: list[RemoteCommandError] = []
        self.written = bytearray()
        self.delayed: list[Delayed] = []
        self.now_s = 0.0
        context = HandlerContext("peer", lambda: self.now_s, self.delayed.append)
        commands = CommandHandler(self)
        self._session = points.before_session(SessionIncoming(self, commands), context)
        self.incoming = points.before_connection(ConnectionIncoming(self, limits), context)
        self.outgoing = points.before_output(SessionOutgoing(self.written.extend), context)
        self.takes_commands = True

    def session_on(self, channel: int) -> AssemblyHandler | None:
        return self._session if channel == 3 else None

    def session_failed(self, _channel: int, error: RemoteCommandError) -> None:
        self.failed.append(error)

    def connection_control(self, control: Any) -> None:
        self.controls.append(control)

    session_control = connection_control

    def numbered(self, assembly: Assembly) -> Assembly | None:
        assembly.command_id = len(self.invoked)
        return assembly if self.takes_commands else None

    def holds(self, byte_count: int) -> None:
        self.held_bytes = byte_count

    def invoke(self, assembly: Assembly) -> None:
        self.invoked.append(assembly)

    def feed(self, *assemblies: Assembly, max_frame_bytes: int = 4_096) -> None:
        for assembly in assemblies:
            for frame in frames_of(assembly, max_frame_bytes):
                self.incoming.handle_frame(frame)


def peer_with(*rows: dict[str, Any], limits: FramingLimits = FramingLimits()) -> SmallPeer:  # noqa: B008  # a value
    return SmallPeer(insertion_points(rows), limits)


def test_a_command_is_invoked_with_its_header_and_body() -> None:
    peer = peer_with()
    peer.feed(transfer(bytes(10_000)))
    (invoked,) = peer.invoked
    assert (invoked.is_whole, invoked.command_id) == (True, 0)
    assert invoked.header is not None
    assert invoked.header.delivery.routing_key == "q"
    assert invoked.body is not None
    assert invoked.body.payload == bytes(10_000)


def test_a_command_without_content_and_one_without_a_body_are_invoked_too() -> None:
    peer = peer_with()
    peer.feed(Assembly(3, ExecutionSync()), transfer(None))
    assert [each.method.NAME for each in peer.invoked] == ["execution.sync", "message.transfer"]
    assert peer.invoked[1].body is None


def test_controls_are_invoked_where_they_belong() -> None:
    peer = peer_with()
    peer.feed(Assembly(0, ConnectionHeartbeat()), Assembly(3, SessionFlush()))
    assert peer.controls == [ConnectionHeartbeat(), SessionFlush()]


def test_a_control_of_the_connection_on_another_channel_ends_it() -> None:
    with pytest.raises(RemoteFramingError, match="belongs on channel 0"):
        peer_with().feed(Assembly(3, ConnectionHeartbeat()))


def test_what_comes_on_a_channel_without_a_session_is_dropped() -> None:
    peer = peer_with()
    peer.feed(transfer(channel=4), Assembly(4, ExecutionSync()))
    assert (peer.invoked, peer.failed) == ([], [])


def test_a_command_that_is_none_fails_its_session_and_no_other_command() -> None:
    peer = peer_with()
    peer.incoming.handle_frame(Frame(1, ALONE, 3, b"\x04\xff\x01\x00"))
    peer.feed(transfer())
    assert [each.code for each in peer.failed] == [503]
    assert len(peer.invoked) == 1


def test_frames_of_a_command_that_the_session_does_not_take_are_dropped() -> None:
    peer = peer_with()
    peer.takes_commands = False
    peer.feed(transfer())
    peer.takes_commands = True
    peer.feed(transfer())
    assert len(peer.invoked) == 1


def test_a_body_without_end_fails_its_session() -> None:
    peer = peer_with(limits=FramingLimits(max_assembly_bytes=20_000))
    peer.feed(transfer(bytes(60_000)))  # all of it comes, as the peer does not know yet
    assert [each.code for each in peer.failed] == [506]
    assert peer.invoked == []


def test_what_goes_out_is_encoded_in_frames_of_the_agreed_size() -> None:
    peer = peer_with()
    standard = SessionOutgoing(peer.written.extend)
    standard.max_frame_bytes = 4_096
    standard.handle_assembly(transfer(bytes(5_000)))
    frames = FrameReader(4_096).feed(bytes(peer.written))
    assert [each.type for each in frames] == [1, 2, 3, 3]
    standard.handle_frame(frames[0])
    assert len(peer.written) == sum(len(each.encoded) for each in [*frames, frames[0]])


def test_add_ons_stand_in_the_order_in_which_they_are_named() -> None:
    passed: list[str] = []

    class Named(AssemblyAddOn):
        name = ""

        def handle_assembly(self, assembly: Assembly) -> None:
            passed.append(self.name)
            super().handle_assembly(assembly)

    def named(text: str) -> Any:
        def make(then: AssemblyHandler, _context: HandlerContext) -> Named:
            it = Named(then)
            it.name = text
            return it

        return make

    points = InsertionPoints(
        connection_incoming=(lambda then, _context: FrameAddOn(then),),
        session_incoming=(named("a"), named("b")),
        session_outgoing=(named("out"),),
    )
    peer = SmallPeer(points, FramingLimits())
    peer.feed(transfer())
    peer.outgoing.handle_assembly(transfer())
    assert passed == ["a", "b", "out"]
    assert len(peer.invoked) == 1


LIMITER = {"point": "connection-incoming", "handler": "rate-limiter"}
ROUTER = {
    "point": "session-incoming",
    "handler": "header-router",
    "header": "region",
    "value": "eu",
    "exchange": "amq.topic",
    "routing_key": "eu.orders",
}


@pytest.mark.parametrize("body", [b"content", bytes(10_000), None])
def test_the_router_puts_the_header_together_and_leaves_the_body_to_others(
    body: bytes | None,
) -> None:
    peer = peer_with(ROUTER)
    peer.feed(transfer(body), transfer(body, region="us"))
    routed, other = peer.invoked
    told = [
        (each.method.destination, each.header.delivery.routing_key)  # type: ignore[union-attr]
        for each in (routed, other)
    ]
    assert told == [("amq.topic", "eu.orders"), ("", "q")]
    assert (routed.body is None) if body is None else (routed.body.payload == body)  # type: ignore[union-attr]
    assert routed.header is not None
    assert routed.header.message.application_headers == {"region": "eu"}


def test_a_header_that_somebody_attached_is_not_put_together_again() -> None:
    peer = peer_with(ROUTER, {**ROUTER, "value": None, "exchange": "", "routing_key": "other"})
    peer.feed(transfer(region="us"))
    assert peer.invoked[0].header is not None
    assert peer.invoked[0].header.delivery.routing_key == "other"


def test_the_router_passes_a_body_without_a_header() -> None:
    peer = peer_with(ROUTER)
    without = transfer()
    without.header = None
    peer.feed(without)
    assert peer.invoked[0].body is not None


def test_the_limiter_holds_back_what_is_too_much_and_keeps_its_order() -> None:
    limit = {"point": "connection-incoming", "handler": "rate-limiter", "frames_per_s": 2}
    peer = peer_with(limit)
    peer.feed(*[Assembly(3, SessionFlush(completed=True))] * 2, Assembly(3, SessionFlush()))
    peer.feed(Assembly(3, ExecutionSync()))
    assert len(peer.controls) == 2
    (limiter,) = {id(each): each for each in peer.delayed}.values()
    due_at_s = limiter.due_at_s()
    assert due_at_s == 0.5
    limiter.go_on()
    assert len(peer.controls) == 2
    peer.now_s = 0.5
    limiter.go_on()
    assert (peer.controls[2], peer.invoked) == (SessionFlush(), [])
    peer.now_s = 1.0
    limiter.go_on()
    assert len(peer.invoked) == 1
    assert limiter.due_at_s() is None


def test_the_tracer_tells_what_passes_and_forwards_it(caplog: pytest.LogCaptureFixture) -> None:
    tracer = {"handler": "frame-tracer"}
    peer = peer_with(
        {"point": "connection-incoming", **tracer, "name": "raw"},
        {"point": "session-incoming", **tracer},
        {"point": "session-outgoing", **tracer},
    )
    with caplog.at_level(logging.INFO):
        peer.feed(transfer())
        peer.outgoing.handle_assembly(Assembly(3, ExecutionSync()))
    assert len(peer.invoked) == 1
    told = "\n".join(caplog.messages)
    assert "raw peer: channel 3 header frame" in told
    assert "MessageTransfer(destination=''" in told
    assert "ExecutionSync()" in told


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("frame-tracer", "no table with point and handler"),
        ({"point": "session-incoming"}, "no table with point and handler"),
        ({"point": "session", "handler": "frame-tracer"}, "point 'session' is not one of"),
        ({"point": "session-incoming", "handler": "tracer"}, "is not frame-tracer"),
        ({"point": "session-incoming", "handler": "rate-limiter"}, "stands at connection-incoming"),
        ({"point": "session-incoming", "handler": "no.such:thing"}, "cannot be imported"),
        ({"point": "session-incoming", "handler": "os:nothing"}, "cannot be imported"),
        ({**ROUTER, "rooting_key": "x"}, "rooting_key"),
        ({"point": "session-incoming", "handler": "header-router"}, "header"),
        (
            {"point": "connection-incoming", "handler": "rate-limiter", "frames_per_s": 0},
            "above 0",
        ),
        (
            {"point": "connection-incoming", "handler": "rate-limiter", "frames_per_s": "x"},
            "rate-limiter",
        ),
        ({**LIMITER, "frames_per_s": True}, "above 0"),
        ({**LIMITER, "frames_per_s": math.inf}, "above 0"),
        ({**LIMITER, "frames_per_s": math.nan}, "above 0"),
        ({**LIMITER, "frames_per_s": 10, "burst": 1.5}, "whole number"),
        ({**ROUTER, "header": 5}, "header is text"),
        ({**ROUTER, "routing_key": 5}, "routing_key is text"),
        ({**ROUTER, "routing_key": "é" * 128}, "routing_key is text of at most 255 bytes"),
        ({**ROUTER, "exchange": b"x"}, "exchange is text"),
        ({**ROUTER, "value": ["eu"]}, "value is text"),
        ({"point": "session-incoming", "handler": "frame-tracer", "name": 5}, "name is text"),
        ({"point": ["session-incoming"], "handler": "frame-tracer"}, "is not one of"),
        ({"point": "session-incoming", "handler": ["frame-tracer"]}, "is not frame-tracer"),
        ({"point": "session-incoming", "handler": ".relative:x"}, "cannot be imported"),
    ],
)
def test_a_slip_in_the_settings_is_one_line(row: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        insertion_points([row])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rows", [None, 5, "frame-tracer", {"point": "session-incoming"}])
def test_what_is_no_list_of_handlers_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidRequest, match="no list of tables"):
        insertion_points(rows)


@pytest.mark.parametrize("makers", [FrameTracer, [FrameTracer], (5,), None])
def test_a_point_that_has_no_makers_is_refused_before_a_client_comes(makers: Any) -> None:
    with pytest.raises(InvalidRequest, match="session_incoming is a tuple of makers"):
        InsertionPoints(session_incoming=makers)


def test_a_handler_of_ones_own_is_named_by_its_module() -> None:
    own = "broker_shim.handlers.frame_tracer:FrameTracer"
    points = insertion_points([{"point": "session-incoming", "handler": own}])
    context = HandlerContext("", lambda: 0.0, lambda _delayed: None)
    ((make,), nobody) = (points.session_incoming, None)
    assert isinstance(make(nobody, context), FrameTracer)  # type: ignore[arg-type]
