"""Bytes that are nearly AMQP, for the whole of a connection: protocol, broker and store in memory.

Frames are put together at random, most of them as a client would, and then bytes are changed. What
must hold: nothing raises, nothing is logged as a fault of ours, no input takes long, and what is
written back are frames.
"""

from __future__ import annotations

import logging
import random
import re
import time

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
    TransactionalState,
    Transfer,
)
from broker_shim.broker.settings import BrokerSettings
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.amqp_1_0 import attach, flow
from tests.support.amqp.memory_broker import MemoryBroker

MOST_INPUT_S = 2.0
_INTERESTING = (b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff")
_ADDRESSES = ("q", "a::b", "a", "amq.topic/x.#", "amq.fanout", "", None, "x::", "ü" * 20, "q" * 300)
_TRANSACTION = bytes(range(16))
"""Stands for the id that the broker declared last."""
_DECLARED = re.compile(rb"\x00\x53\x33\xc0\x13\x01\xa0\x10(.{16})", re.DOTALL)
_OUTCOMES = (Accepted(), Released(), Rejected(), Modified(delivery_failed=True))
_STATES = (
    None,
    *_OUTCOMES,
    Received(0, 3),
    TransactionalState(_TRANSACTION),
    *(TransactionalState(_TRANSACTION, each) for each in _OUTCOMES),
)
_SELECTORS = ("a = 1", "JMSPriority > 3 AND b LIKE 'x%'", "((((", "a" * 500, "NOT a IS NULL")
_MESSAGES = (
    b"\x00Sw\xa1\x05hello",
    b"\x00Sp\xc0\x04\x02AP\x07\x00Ss\xc0\x08\x01\xa1\x05ident\x00Su\xa0\x03abc",
    b"\x00St\xc1\x09\x02\xa1\x01aq\x00\x00\x00\x01\x00Sw@",
    b"\x00Sv\xc0\x03\x01T\x05\x00Sv\x45",
    b"",
)


class Fuzzed:
    """A broker over a store in memory, and one connection after the other to it.

    Attributes:
        declared_count: Transactions that it began.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._store = MemoryMessageStore(1 << 20)
        settings = BrokerSettings(max_sessions=4, max_links=8, max_frame_bytes=4096)
        self._memory = MemoryBroker(self._store, settings)
        self._host = Amqp10Listener(self._memory.broker)
        self._faults = Faults()
        self.declared_count = 0

    def run(self) -> bytes:
        """One input from the first byte to the last; what it was.

        Raises:
            AssertionError: One of the promises above was broken; says the input.
        """
        pieces = spoilt(self._random, Talk(self._random).pieces())
        encoded = b"".join(pieces)
        began_s = time.monotonic()
        logger = logging.getLogger("broker_shim")
        logger.addHandler(self._faults)
        try:
            self._feed(pieces)
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
        return self._memory.broker.metrics.enqueued

    def close(self) -> None:
        """Let go of the store and of what its answers come by."""
        self._store.close()
        self._memory.close()

    def _feed(self, pieces: list[bytes]) -> None:
        connection = self._host.connect(lambda: None)
        written, transaction = bytearray(), _TRANSACTION
        for piece in pieces:
            if piece:  # no bytes are the end
                connection.receive(piece.replace(_TRANSACTION, transaction))
            self._turn()
            said = connection.output()
            written += said
            transaction = next((each[1] for each in _DECLARED.finditer(said)), transaction)
            self.declared_count += transaction in said
            connection.unsent(0)
        connection.tick(time.monotonic())
        connection.lost()
        self._turn()
        written += connection.output()
        _check_frames(bytes(written))

    def _turn(self) -> None:
        """Until nothing is under way: what the store completes, and what that leads to."""
        memory = self._memory
        while memory.broker.is_dispatch_due or memory.delayed or memory.calls.open_count:
            memory.run_delayed()
        assert not memory.fatal


class Faults(logging.Handler):
    """Faults of ours that were contained, and so would not be seen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


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


class Talk:
    """What a client might say, a piece for each frame; now and then not as it should."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._roles: dict[int, bool] = {}
        self._coordinators: set[int] = set()
        self._next_id = 0

    def pieces(self) -> list[bytes]:
        """From the first byte to the last."""
        said = []
        if self._is(0.3):
            said += [SASL_HEADER.encoded(), *self._sasl()]
        opening = Open("fuzz", max_frame_size=self._rng.choice((512, 9999)))
        said += [AMQP_HEADER.encoded(), encoded_frame(opening)]
        for channel in range(self._rng.choice((1, 1, 2))):
            window = self._rng.choice((0, 1, 100, 100))
            begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=window)
            said.append(encoded_frame(begin, channel))
            self._roles, self._coordinators, self._next_id = {}, set(), 0
            for handle in range(self._rng.randrange(1, 4)):
                said.append(self._attach(handle, channel))
                if self._roles[handle] and self._is(0.8):
                    said.append(encoded_frame(flow(handle, 10), channel))
            said += [self._next(channel) for _ in range(self._rng.randrange(10))]
        if self._is(0.3):
            said.append(encoded_frame(Close()))
        return said

    def _is(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _sasl(self) -> list[bytes]:
        words: tuple[Composite, ...] = (
            SaslInit("PLAIN", b"\0a\0b"),
            SaslInit("SCRAM-SHA-256", b"n,,n=a,r=abc"),
            SaslResponse(b"c=biws,r=abc,p=AAAA"),
        )
        right = SaslInit("ANONYMOUS")
        said = right if self._is(0.7) else self._rng.choice(words)
        return [encoded_frame(said, kind=SASL_FRAME)]

    def _attach(self, handle: int, channel: int) -> bytes:
        rng = self._rng
        filters = {
            "selector": Described("apache.org:selector-filter:string", rng.choice(_SELECTORS)),
            "other": Described("of:nobody", [1]),
        }
        address = rng.choice(_ADDRESSES) if self._is(0.3) else "q"
        self._roles[handle] = is_receiver = self._is(0.4)
        source: Source | None = Source(
            address,
            durable=rng.choice((0, 0, 1, 2)),
            expiry_policy=rng.choice(("session-end", "never", "link-detach")),
            dynamic=self._is(0.1),
            distribution_mode=rng.choice((None, "copy", "move")),
            filter=filters if self._is(0.2) else None,
        )
        target = Target(address, durable=rng.choice((0, 0, 1, 2)), dynamic=self._is(0.1))
        if self._is(0.1):
            source, target = rng.choice(((None, target), (source, None), (None, None)))
        if not is_receiver and self._is(0.2):
            target = Coordinator()
            self._coordinators.add(handle)
        return encoded_frame(
            attach(
                handle,
                is_receiver=is_receiver,
                source=source,
                target=target,
                snd_settle_mode=rng.choice((0, 1, 2, 2)),
                rcv_settle_mode=rng.choice((0, 0, 1)),
                unsettled={b"a": Accepted(), b"b": None} if self._is(0.1) else None,
            ),
            channel,
        )

    def _next(self, channel: int) -> bytes:
        rng = self._rng
        handle = rng.choice([*self._roles, rng.randrange(4)] if self._is(0.1) else [*self._roles])
        if self._roles.get(handle):
            return encoded_frame(self._received(handle), channel)
        if self._is(0.8):
            return self._transfer(handle, channel)
        said: tuple[Composite, ...] = (
            flow(handle, 0, drain=self._is(0.3), echo=self._is(0.3)),
            flow(echo=True),
            Detach(handle, closed=self._is(0.5)),
            Detach(handle, closed=self._is(0.5)),
            End(),
        )
        return encoded_frame(rng.choice(said), channel)

    def _transfer(self, handle: int, channel: int) -> bytes:
        rng, number = self._rng, self._next_id
        self._next_id += 0 if self._is(0.05) else 1
        transfer = Transfer(
            handle,
            number,
            number.to_bytes(2, "big"),
            0,
            more=self._is(0.1),
            settled=rng.choice((None, True, False)) if self._is(0.2) else None,
            aborted=self._is(0.05),
            resume=self._is(0.05),
            state=rng.choice(_STATES) if self._is(0.3) else None,
        )
        payload = rng.choice(_MESSAGES)
        if self._is(0.9 if handle in self._coordinators else 0.05):
            discharge = Discharge(_TRANSACTION, fail=rng.choice((None, True, False)))
            payload = described_message(rng.choice((Declare(), Declare(), discharge)))
        return transfer_frame(channel, transfer, len(payload)) + payload

    def _received(self, handle: int) -> Composite:
        rng = self._rng
        first = rng.randrange(4)
        said: tuple[Composite, ...] = (
            flow(handle, rng.choice((0, 1, 10)), drain=self._is(0.3), echo=self._is(0.3)),
            Disposition(
                role=not self._is(0.1),
                first=first,
                last=rng.choice((None, first, first + 1, 0xFFFF_FFFF)),
                settled=self._is(0.5),
                state=rng.choice(_STATES),
            ),
            Detach(handle, closed=self._is(0.5)),
        )
        return said[rng.choice((0, 0, 1, 1, 1, 2))]


def described_message(value: Composite) -> bytes:
    """A message whose body is a composite."""
    return b"\x00Sw" + encoded_composite(value)


def spoilt(rng: random.Random, pieces: list[bytes]) -> list[bytes]:
    """The same with bytes changed in some of them, or in none; perhaps in another order."""
    found = [mutated(rng, each) if rng.random() < 0.05 else each for each in pieces]
    if rng.random() < 0.1:
        at = rng.randrange(len(found))
        found.insert(rng.randrange(len(found)), found.pop(at))
    if rng.random() < 0.3:  # all that is written at once is read before anything is answered
        encoded, size = b"".join(found), rng.choice((1, 7, 100, 5000))
        found = [encoded[at : at + size] for at in range(0, len(encoded), size)]
    return found


def mutated(rng: random.Random, encoded: bytes) -> bytes:
    """The same with some bytes changed."""
    found = bytearray(encoded)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
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
