"""AMQP 0-10 clients that cost next to nothing: bytes prepared once, frames counted, not decoded.

A sender writes all it has and waits for the completion of all; a receiver has credit without end,
and accepts what it got in ranges.
"""

from __future__ import annotations

import socket
import time

from broker_shim.amqp_0_10.commands import (
    Command,
    ExecutionSync,
    MessageAccept,
    MessageFlow,
    MessageSubscribe,
    MessageTransfer,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    Control,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
)
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.frames import FIRST_SEGMENT, PROTOCOL_HEADER, Frame, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.framing.sequences import contains

_READ_BYTES = 1 << 18
_INFINITE = 0xFFFFFFFF
_COMMAND = 1


def transfers(count: int, size: int, queue: str) -> bytes:
    """So many durable messages of `size` bytes to a queue, nothing asked about any of them."""
    header = HeaderSegment.of(
        MessageDeliveryProperties(routing_key=queue, delivery_mode=2),
        MessageProperties(content_length=size),
    )
    transfer = Assembly(1, MessageTransfer("", 1, 0), header=header, body=BodySegment(bytes(size)))
    return count * b"".join(frame.encoded for frame in frames_of(transfer))


class _Peer:
    """One connection with one session on channel 1."""

    def __init__(self, port: int, name: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames, self._methods = FrameReader(), MethodReader(FramingLimits())
        self.socket.sendall(PROTOCOL_HEADER)
        assert self.socket.recv(8, socket.MSG_WAITALL) == PROTOCOL_HEADER
        self.say(ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"), 0)
        self.say(ConnectionTuneOk(8, 65_535, 0), 0)
        self.say(ConnectionOpen(""), 0)
        while not any(isinstance(self.method(frame), ConnectionOpenOk) for frame in self.frames()):
            pass
        self.say(SessionAttach(name))
        self.frames()
        self.say(SessionCommandPoint(0, 0))

    def say(self, method: Control | Command, channel: int = 1, *, sync: bool = False) -> None:
        """Send a control or command."""
        frames = frames_of(Assembly(channel, method, sync))
        self.socket.sendall(b"".join(frame.encoded for frame in frames))

    def frames(self) -> list[Frame]:
        """Wait for bytes; the frames that are whole."""
        received = self.socket.recv(_READ_BYTES)
        assert received, "the broker hung up"
        return self._frames.feed(received)

    def method(self, frame: Frame) -> object:
        """The control or command that a frame ends, if it does."""
        assembly = self._methods.take(frame)
        return assembly.method if isinstance(assembly, Assembly) else None

    def wait_for(self, command_id: int) -> None:
        """Until this command is complete."""
        while True:
            for frame in self.frames():
                done = self.method(frame)
                if isinstance(done, SessionCompleted) and contains(done.commands or (), command_id):
                    return


def send(port: int, stream: bytes, count: int) -> float:
    """Send what was prepared; seconds until all of it is complete."""
    peer = _Peer(port, b"sender")
    began_s = time.perf_counter()
    peer.socket.sendall(stream)
    peer.say(ExecutionSync(), sync=True)
    peer.wait_for(count)
    took_s = time.perf_counter() - began_s
    peer.socket.close()
    return took_s


def receive(port: int, queue: str, count: int) -> float:
    """Take and accept messages; seconds until all of that is complete."""
    peer = _Peer(port, b"receiver")
    began_s = time.perf_counter()
    peer.say(MessageSubscribe(queue, "d", 0, 0))
    peer.say(MessageFlow("d", 1, _INFINITE))
    peer.say(MessageFlow("d", 0, count))
    came = accepted = 0
    commands = 3
    while came < count:
        came += sum(f.type == _COMMAND and f.flags & FIRST_SEGMENT != 0 for f in peer.frames())
        if came > accepted:
            peer.say(MessageAccept(((accepted, came - 1),)))
            accepted, commands = came, commands + 1
    peer.say(ExecutionSync(), sync=True)
    peer.wait_for(commands)
    took_s = time.perf_counter() - began_s
    peer.socket.close()
    return took_s
