"""A peer that writes any frame and keeps no rule; and a client that notices if it is disturbed."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from proton import Message
from proton.utils import BlockingConnection

from broker_shim.amqp_1_0.composites import (
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Flow,
    Open,
    Target,
)
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    FrameDecoder,
    ProtocolHeader,
    encoded_frame,
    transfer_frame,
)
from tests.support.amqp.amqp_1_0 import attach
from tests.support.system.processes import BrokerProcess

TIMEOUT_S = 20
P = TypeVar("P")


class RawPeer:
    """A socket to a broker.

    Attributes:
        payload: What the newest frame brought behind its performative.
    """

    payload = b""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
        self._decoder = FrameDecoder(1 << 30)
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def write(self, encoded: bytes) -> None:
        """Bytes as they are; a broker that has hung up already is no error."""
        try:
            self.socket.sendall(encoded)
        except (BrokenPipeError, ConnectionResetError):
            self._is_over = True

    def say(self, *performatives: Composite, channel: int = 0) -> None:
        self.write(b"".join(encoded_frame(each, channel) for each in performatives))

    def transfer(self, transfer: TransferFrame, payload: bytes, channel: int = 0) -> None:
        self.write(transfer_frame(channel, transfer, len(payload)) + payload)

    def header(self) -> ProtocolHeader:
        """The next thing it says, which is a protocol header."""
        while (found := self._decoder.next_header()) is None:
            assert self._receive(), "the broker hung up"
        return found

    def next(self) -> Any:
        """The next performative; None at the end."""
        while True:
            frame = self._decoder.next_frame()
            if frame is None:
                if not self._receive():
                    return None
            elif frame.start != frame.end:  # no heartbeat
                performative, at = read_performative(frame.encoded, frame.start, frame.end)
                self.payload = frame.encoded[at : frame.end]
                return performative

    def until(self, kind: type[P]) -> P:
        """The next of a kind; what comes before it is read past."""
        while not isinstance(found := self.next(), kind):
            assert found is not None, f"the broker hung up before {kind.__name__}"
        return found

    def is_hung_up_on(self) -> bool:
        """True once the broker has hung up, whatever it says until then."""
        while self._receive():
            pass
        return True

    def opened(self, container: str = "raw", **fields: Any) -> Self:
        self.write(AMQP_HEADER.encoded())
        self.say(Open(container, **fields))
        assert self.header() == AMQP_HEADER
        self.until(Open)
        return self

    def begun(self, channel: int = 0) -> Self:
        begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
        self.say(begin, channel=channel)
        self.until(Begin)
        return self

    def sending(self, address: str, handle: int = 0, **fields: Any) -> Self:
        """Attach as a sender and wait for credit."""
        self.say(attach(handle, target=Target(address), **fields))
        self.until(Flow)
        return self

    def _receive(self) -> bool:
        """Read more; False at the end."""
        if self._is_over:
            return False
        try:
            received = self.socket.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        self._decoder.feed(received)
        self._is_over = not received
        return not self._is_over


def condition(ended: Close | Detach | End) -> str:
    """Why something ended."""
    assert ended.error is not None
    return str(ended.error.condition)


class Bystander:
    """A client that sends and receives all the while, one message after the other."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._connection = BlockingConnection(broker.url, timeout=TIMEOUT_S)
        self._sender = self._connection.create_sender("bystander")
        self._receiver = self._connection.create_receiver("bystander", credit=1)
        self._condition = threading.Condition()
        self._round_count = 0
        self._failure: Exception | None = None
        self._is_done = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_a_round(self) -> None:
        """Until it has sent and received once more, beginning after this call."""
        with self._condition:
            wanted = self._round_count + 2  # one may be under way
            self._condition.wait_for(
                lambda: self._round_count >= wanted or self._failure is not None, TIMEOUT_S
            )
            assert self._failure is None, self._failure
            assert self._round_count >= wanted

    def end(self) -> None:
        self._is_done = True
        self._thread.join(TIMEOUT_S)
        self._connection.close()

    def _run(self) -> None:
        try:
            while not self._is_done:
                self._sender.send(Message(id=self._round_count))
                assert self._receiver.receive(TIMEOUT_S).id == self._round_count
                self._receiver.accept()
                with self._condition:
                    self._round_count += 1
                    self._condition.notify_all()
        except Exception as failure:  # noqa: BLE001  # whatever it is, the test wants to see it
            with self._condition:
                self._failure = failure
                self._condition.notify_all()


def resident_bytes(broker: BrokerProcess) -> int:
    """Memory of a broker that is resident now."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) * 1024
