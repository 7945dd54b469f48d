"""Python calls that one message costs on the loop's thread.

    python -m jobs.benchmarks.trace_message [--count N] [--range N] [--functions N] [--json]

    enqueue              transfer in → stored durably → accepted out
    acquire and deliver  flow in → acquired durably → transfer out
    accept               disposition in → dequeued durably → settled

Real frames of 1 KiB messages go into a real connection of a broker on a root, in reads of 64 KiB;
credit is 1,000, dispositions name `--range` deliveries. What is counted are calls of Python
functions on this thread, which is the loop's: the client is bytes that were prepared before.
Counts are exact and the same on every machine, which times are not: a change of the hot path is
judged by them first. `functions` and `files` are those that the median message's share touches,
`changes` counts a caller in another file.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, Protocol

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
)
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
)
from broker_shim.sockets.turns import Turns
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from jobs.benchmarks.amqp_load import CREDIT, WINDOW, message, transfers_of

READ_BYTES = 1 << 16
SIZE = 1_024


class Trace(NamedTuple):
    """What one message cost, of one kind.

    Attributes:
        calls: Python calls.
        functions: Different ones.
        files: That they are in.
        changes: Calls from one file to another.
        top: The functions that were called most: what, and calls a message.
    """

    calls: float
    functions: int
    files: int
    changes: float
    top: list[tuple[str, float]]


class Watch(Protocol):
    """Watches this thread while it is entered."""

    def on(self) -> AbstractContextManager[None]:
        """Watch while the block runs."""


class Counting:
    """Counts calls on this thread while it is entered."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()
        self._changes = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count while the block runs."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._calls[frame.f_code] += 1
            caller = frame.f_back
            if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
                self._changes += 1

    def trace(self, count: int, most: int) -> Trace:
        """The share of one of `count` messages; the `most` functions that it called most."""
        often = {code: calls for code, calls in self._calls.items() if calls * 2 >= count}
        return Trace(
            round(sum(self._calls.values()) / count, 1),
            len(often),
            len({code.co_filename for code in often}),
            round(self._changes / count, 1),
            [
                (f"{Path(code.co_filename).name}:{code.co_qualname}", round(calls / count, 2))
                for code, calls in self._calls.most_common(most)
            ],
        )


class Server:
    """A broker on a root, with the queue `load`, whose loop is moved step by step."""

    def __init__(self, root: Path) -> None:
        self._inbox, self._turns = Inbox(), Turns()
        self._store = DeltaMessageStore(root)
        self._calls = StoreCalls(self._store, self._inbox, _end)
        self._later: list[Callable[[], None]] = []
        self.metrics = Metrics()
        self._broker = Broker(
            self._calls,
            BrokerSettings(credit=CREDIT),
            self.metrics,
            lambda _delay_s, call: self._later.append(call),
            AmqpCommonHeader,
        )
        self._host = Amqp10Listener(self._broker)
        self._broker.create_queue(Queue("load"), _stored)
        self._settle()

    def connect(self, link: Attach) -> Connection:
        """A connection with one link."""
        connection = self._host.connect(lambda: None)
        greeting = SASL_HEADER.encoded() + encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME)
        connection.receive(greeting + AMQP_HEADER.encoded())
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        self.turn(connection, Open(link.name, max_frame_size=1 << 16), begin, link)
        self.turn(connection)
        return connection

    def turn(self, connection: Connection, *frames: Composite, received: bytes = b"") -> None:
        """One turn of the loop after a read, and those that its answers lead to."""
        received += b"".join(map(encoded_frame, frames))
        if received:
            connection.receive(received, self._turns.work)
        self._end_turn(connection)
        while connection.has_more:
            connection.go_on(self._turns.work)
            self._end_turn(connection)
        self._settle()
        self._end_turn(connection)

    def close(self) -> None:
        """End the store."""
        self._store.close()
        self._inbox.close()

    def _end_turn(self, connection: Connection) -> None:
        self._broker.dispatch()
        connection.output()
        connection.unsent(0)

    def _settle(self) -> None:
        """Until the store has answered everything."""
        self._broker.dispatch()
        while self._calls.open_count or self._later:
            if self._calls.open_count:
                select.select([self._inbox], [], [])
                self._inbox.drain()
            later, self._later[:] = self._later[:], []
            for call in later:
                call()
            self._broker.dispatch()


def _end(error: Exception) -> None:
    raise error


def _stored(error: Exception | None) -> None:
    assert error is None, error


def traced(count: int, in_range: int, most: int = 0) -> dict[str, Trace]:
    """What each kind costs, of so many messages after as many to warm up."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "root")
        try:
            send(server, count, Counting())
            receive(server, count, in_range, Counting(), Counting())
            enqueue, deliver, accept = Counting(), Counting(), Counting()
            send(server, count, enqueue)
            receive(server, count, in_range, deliver, accept)
        finally:
            server.close()
    return {
        "enqueue": enqueue.trace(count, most),
        "acquire and deliver": deliver.trace(count, most),
        "accept": accept.trace(count, most),
    }


def send(server: Server, count: int, watch: Watch, *, have_ids: bool = False) -> None:
    """So many messages that a client sends on one link, until all are stored."""
    link = Attach(
        f"s{count}", 0, False, source=Source("x"), target=Target("load"), initial_delivery_count=0
    )
    connection = server.connect(link)
    numbers = range(count) if have_ids else repeat(None, count)
    stream = transfers_of([message(SIZE, number=number) for number in numbers])
    before = server.metrics.enqueued
    with watch.on():
        for at in range(0, len(stream), READ_BYTES):
            server.turn(connection, received=stream[at : at + READ_BYTES])
    assert server.metrics.enqueued - before == count
    connection.lost()


def receive(server: Server, count: int, in_range: int, delivering: Watch, accepting: Watch) -> None:
    """So many messages delivered to a link, then accepted, so many in a range."""
    link = Attach(f"r{count}", 0, True, source=Source("load"), target=Target("y"))
    connection = server.connect(link)
    metrics = server.metrics
    delivered, accepted = metrics.delivered, metrics.accepted
    with delivering.on():
        while (got := metrics.delivered - delivered) < count:
            server.turn(connection, _credit(got, min(CREDIT, count - got)))
    with accepting.on():
        for first in range(0, count, in_range):
            last = min(first + in_range, count) - 1
            server.turn(connection, Disposition(True, first, last, settled=True, state=Accepted()))
    assert metrics.accepted - accepted == count
    connection.lost()


def _credit(got: int, credit: int) -> Flow:
    return Flow(
        next_incoming_id=got,
        incoming_window=WINDOW,
        next_outgoing_id=0,
        outgoing_window=WINDOW,
        handle=0,
        delivery_count=got,
        link_credit=credit,
    )


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--range", type=int, default=60, dest="in_range")
    parser.add_argument("--functions", type=int, default=0, help="list the most called functions")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    traces = traced(asked.count, asked.in_range, asked.functions)
    if asked.json:
        print(json.dumps({name: trace._asdict() for name, trace in traces.items()}))
        return
    print(f"{'one …':<22}{'calls':>8}{'functions':>11}{'files':>7}{'changes of file':>17}")
    for name, trace in traces.items():
        row = f"{trace.calls:>8}{trace.functions:>11}{trace.files:>7}{trace.changes:>17}"
        print(f"{name:<22}{row}")
        for function, calls in trace.top:
            print(f"    {calls:>7}  {function}")


if __name__ == "__main__":
    main()
