"""Bytes that are nearly AMQP, for the whole of a connection: protocol, broker and store in memory.

Frames are put together at random, most of them as a client would, and then bytes are changed. What
must hold: nothing raises, nothing is logged as a fault of ours, no input takes long, and what is
written back are frames.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from broker_shim.embedded.broker import Broker
from broker_shim.embedded.connection import Connection
from broker_shim.embedded.inbox import Inbox
from broker_shim.embedded.metrics import Metrics
from broker_shim.embedded.settings import BrokerSettings
from broker_shim.embedded.store_calls import StoreCalls
from broker_shim.protocol_1_0.errors import ProtocolViolation
from broker_shim.protocol_1_0.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.values import Described
from broker_shim.store.memory import MemoryMessageStore
from tests.amqp_1_0 import attach, flow

MOST_INPUT_S = 2.0
_INTERESTING = (b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff")
_ADDRESSES = ("q", "a::b", "a", "amq.topic/x.#", "amq.fanout", "", None, "x::", "ü" * 20, "q" * 300)
_SELECTORS = ("a = 1", "JMSPriority > 3 AND b LIKE 'x%'", "((((", "a" * 500, "NOT a IS NULL")
_MESSAGES = (
    b"\x00Sw\xa1\x05hello",
    b"\x00Sp\xc0\x04\x02AP\x07\x00Ss\xc0\x08\x01\xa1\x05ident\x00Su\xa0\x03abc",
    b"\x00St\xc1\x09\x02\xa1\x01aq\x00\x00\x00\x01\x00Sw@",
    b"\x00Sv\xc0\x03\x01T\x05\x00Sv\x45",
    b"",
)


class Fuzzed:
    """A broker over a store in memory, and one connection after the other to it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._inbox = Inbox()
        self._later: list[Callable[[], None]] = []
        calls = StoreCalls(MemoryMessageStore(1 << 20), self._inbox, _raise)
        settings = BrokerSettings(max_sessions=4, max_links=8, max_frame_bytes=4096)
        self._broker = Broker(calls, settings, Metrics(), lambda _s, call: self._later.append(call))
        self._faults = _Faults()

    def run(self) -> bytes:
        """One input from the first byte to the last; what it was.

        Raises:
            AssertionError: One of the promises above was broken; says the input.
        """
        encoded = mutated(self._random, talk(self._random))
        began_s = time.monotonic()
        logger = logging.getLogger("broker_shim")
        logger.addHandler(self._faults)
        try:
            self._feed(encoded)
        except Exception as failure:
            message = f"{failure!r} by {encoded.hex()}"
            raise AssertionError(message) from failure
        finally:
            logger.removeHandler(self._faults)
        took_s = time.monotonic() - began_s
        assert not self._faults.seen, f"{self._faults.seen} by {encoded.hex()}"
        assert took_s < MOST_INPUT_S, f"{took_s:.1f} s by {encoded.hex()}"
        return encoded

    @property
    def enqueued_count(self) -> int:
        """Messages that came through all of it."""
        return self._broker.metrics.enqueued

    def close(self) -> None:
        """Let go of its descriptor."""
        self._inbox.close()

    def _feed(self, encoded: bytes) -> None:
        connection = Connection(self._broker, lambda: None)
        written = bytearray()
        at = 0
        while at < len(encoded):
            size = self._random.choice((1, 7, 100, 5000))
            connection.receive(encoded[at : at + size])
            at += size
            self._turn()
            written += connection.output()
            connection.unsent(0)
        connection.tick(time.monotonic())
        connection.lost()
        self._turn()
        written += connection.output()
        _check_frames(bytes(written))

    def _turn(self) -> None:
        while self._inbox.drain():
            pass
        self._broker.dispatch()
        put_off, self._later = self._later, []
        for call in put_off:
            call()
        while self._inbox.drain():
            pass


class _Faults(logging.Handler):
    """Faults of ours that were contained, and so would not be seen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


def _raise(error: BaseException) -> None:
    raise error


def _check_frames(written: bytes) -> None:
    """What we write can be read."""
    decoder = FrameDecoder(1 << 20)
    decoder.feed(written)
    try:
        while decoder.next_header() is not None:
            while decoder.next_frame() is not None:
                pass
            return
    except ProtocolViolation:
        # A second header follows SASL's frames: it looks like a frame that is far too large.
        if b"AMQP" not in written[8:]:
            raise


def talk(rng: random.Random) -> bytes:
    """What a client might say."""
    said = bytearray()
    if rng.random() < 0.3:
        said += SASL_HEADER.encoded() + _sasl(rng)
    opening = Open("fuzz", max_frame_size=rng.choice((512, 9999)))
    said += AMQP_HEADER.encoded() + encoded_frame(opening)
    for channel in range(rng.choice((1, 1, 2))):
        window = rng.choice((0, 1, 100))
        begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=window)
        said += encoded_frame(begin, channel)
        for handle in range(rng.randrange(4)):
            said += encoded_frame(_attach(rng, handle), channel)
        for number in range(rng.randrange(8)):
            said += _next(rng, number, channel)
    if rng.random() < 0.3:
        said += encoded_frame(Close())
    return bytes(said)


def _sasl(rng: random.Random) -> bytes:
    words: tuple[Composite, ...] = (
        SaslInit("ANONYMOUS"),
        SaslInit("PLAIN", b"\0a\0b"),
        SaslInit("SCRAM-SHA-256", b"n,,n=a,r=abc"),
        SaslResponse(b"c=biws,r=abc,p=AAAA"),
    )
    count = rng.randrange(1, 3)
    return b"".join(encoded_frame(rng.choice(words), kind=SASL_FRAME) for _ in range(count))


def _attach(rng: random.Random, handle: int) -> Composite:
    filters = {
        "selector": Described("apache.org:selector-filter:string", rng.choice(_SELECTORS)),
        "other": Described("of:nobody", [1]),
    }
    source = Source(
        rng.choice(_ADDRESSES),
        durable=rng.choice((0, 1, 2)),
        dynamic=rng.random() < 0.1,
        distribution_mode=rng.choice((None, "copy", "move")),
        filter=rng.choice((None, filters)),
    )
    target = rng.choice((Target(rng.choice(_ADDRESSES)), None, Coordinator()))
    return attach(
        handle,
        is_receiver=rng.random() < 0.5,
        source=rng.choice((source, source, None)),
        target=target,
        snd_settle_mode=rng.choice((0, 1, 2)),
        rcv_settle_mode=rng.choice((0, 1)),
        unsettled=rng.choice((None, None, {b"a": Accepted(), b"b": None})),
    )


def _next(rng: random.Random, number: int, channel: int) -> bytes:
    handle = rng.randrange(4)
    state = rng.choice(
        (None, Accepted(), Released(), Rejected(), Modified(delivery_failed=True), Received(0, 3))
    )
    if rng.random() < 0.6:
        payload = rng.choice(_MESSAGES)
        if rng.random() < 0.1:
            payload = b"\x00Sw" + rng.choice((b"", b"\x00\x80" + bytes(8))) + b"\x45"
        transfer = Transfer(
            handle,
            number,
            bytes((number,)),
            0,
            more=rng.random() < 0.3,
            settled=rng.choice((None, True, False)),
            aborted=rng.random() < 0.05,
            resume=rng.random() < 0.05,
        )
        return transfer_frame(channel, transfer, len(payload)) + payload
    said: tuple[Composite, ...] = (
        flow(handle, rng.choice((0, 1, 10)), drain=rng.random() < 0.3, echo=rng.random() < 0.3),
        Disposition(
            role=rng.random() < 0.5,
            first=rng.randrange(3),
            last=rng.choice((None, 2, 0xFFFF_FFFF)),
            settled=rng.random() < 0.5,
            state=state,
        ),
        Detach(handle, closed=rng.random() < 0.5),
        _attach(rng, handle),
        Declare(),
        Discharge(b"t"),
        End(),
    )
    return encoded_frame(rng.choice(said), channel)


def mutated(rng: random.Random, encoded: bytes) -> bytes:
    """The same with some bytes changed, or none."""
    found = bytearray(encoded)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(found)) if found else 0
        match rng.randrange(6):
            case 0:
                found[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                found[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del found[at : at + rng.randrange(1, 9)]
            case 3:
                end = at + rng.randrange(1, 200)
                found[at:at] = found[at:end]
            case 4:
                value = rng.choice(_INTERESTING)
                found[at : at + len(value)] = value
            case _:
                del found[at:]
    return bytes(found)
