"""A client of a broker in memory that writes frames as no library does."""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_1_0.composites import (
    Attach,
    Begin,
    Flow,
    Open,
    Source,
    Target,
)
from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import AMQP_HEADER, FrameDecoder, encoded_frame
from tests.support.amqp.bench import Bench

WINDOW = 2_048


class Raw:
    """A client that writes frames, and reads what comes back.

    Attributes:
        greeted: The answers to its open and begin, and to what it wrote behind them.
    """

    def __init__(self, bench: Bench, *more: Any, **fields: Any) -> None:
        self.bench = bench
        self._decoder = FrameDecoder(1 << 30)
        bench.ours.receive(AMQP_HEADER.encoded())
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        self.send(Open("raw", **fields), begin, *more)
        encoded = self._bytes()
        assert encoded.startswith(AMQP_HEADER.encoded())
        self.greeted = self._frames(encoded[8:])

    def send(self, *performatives: Any) -> None:
        """In one piece, as one read of a socket would bring them."""
        self.bench.ours.receive(b"".join(map(encoded_frame, performatives)))
        self.bench.run()

    def read(self) -> list[Any]:
        """The performatives that came since."""
        return self._frames(self._bytes())

    def _frames(self, encoded: bytes) -> list[Any]:
        self._decoder.feed(encoded)
        found = []
        while (frame := self._decoder.next_frame()) is not None:
            found.append(read_performative(frame.encoded, frame.start, frame.end)[0])
        return found

    def _bytes(self) -> bytes:
        encoded = self.bench.ours.output()
        self.bench.ours.unsent(0)
        return encoded

    def receiver(self, credit: int, handle: int = 0, **fields: Any) -> None:
        """Attach to q, with credit."""
        told = {"source": Source("q"), "target": Target("t"), **fields}
        self.send(Attach(f"r{handle}", handle, True, **told), flow(handle, credit))


def flow(handle: int, credit: int) -> Flow:
    return Flow(0, WINDOW, 0, WINDOW, handle, 0, credit)


def waiting(bench: Bench) -> int:
    return len(bench.broker.queues["q"].browse(Cursor(), 99))
