"""Bytes that are nearly AMQP 0-10, for the whole of a connection: protocol, broker and store.

Every control and command, with values that fit their fields and mean something here now and then;
then bytes are changed. What must hold: nothing raises, nothing is logged as a fault of ours, no
input takes long, and what is written back are frames.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import fields
from typing import Any

from broker_shim.amqp_0_10.commands import (
    COMMANDS,
    DtxSelect,
    ExecutionSync,
    MessageAccept,
    MessageFlow,
    MessageSubscribe,
    MessageTransfer,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import (
    CONTROLS,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    SessionAttach,
    SessionRequestTimeout,
)
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.frames import PROTOCOL_HEADER, FrameReader
from tests.support.amqp.amqp_0_10 import Bench010, content
from tests.support.amqp.fuzzing import MOST_INPUT_S, Faults, spoilt

_NAMES = ("q", "q", "d", "", "amq.topic", "amq.match", "none", "a::b", "x" * 255, "ü")
_NUMBERS = (0, 0, 1, 2, 7, 0x7F, 0xFF)
_LARGE = (0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
_RANGES = (((0, 0),), ((0, 3),), (), ((3, 1),), ((0, 0x7FFFFFFF),), ((1, 2), (2, 3)))
_TURNS = 100
"""So often at most the broker has its turn in one input."""
_NESTED: dict[str, Any] = {"k": {"a": [1, "x", None, {"b": 1.5}]}, "x-match": "any", "n": 1}
_TYPICAL = (
    MessageSubscribe("q", "d", 0, 0),
    MessageFlow("d", 0, 0xFFFFFFFF),
    MessageFlow("d", 1, 0xFFFFFFFF),
    MessageAccept(((0, 9),)),
    ExecutionSync(),
    TxSelect(),
    DtxSelect(),
    SessionRequestTimeout(5),
)


class Fuzzed010:
    """A broker over a store in memory, and one connection after the other to it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        limits = {"max_message_bytes": 2_000, "max_header_bytes": 4_096}
        self._bench = Bench010(settings=BrokerSettings(max_sessions=8, **limits))
        self._faults = Faults()

    @property
    def enqueued_count(self) -> int:
        """Messages that came through all of it."""
        return self._bench.broker.metrics.enqueued

    def run(self) -> bytes:
        """One input from the first byte to the last; what it was.

        Raises:
            AssertionError: One of the promises above was broken; says the input.
        """
        pieces = self._pieces()
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

    def _feed(self, pieces: list[bytes]) -> None:
        connection = self._bench.host.connect(lambda: None)
        written = bytearray()
        for at, piece in enumerate(pieces):
            if piece:  # no bytes are the end
                connection.receive(piece)
            if at % (1 + len(pieces) // _TURNS) and at + 1 < len(pieces):
                continue
            self._bench.run()
            while connection.has_more and not connection.is_closed:
                connection.go_on(1 << 30)
                self._bench.run()
            written += connection.output()
            connection.unsent(0)
        connection.lost()
        self._bench.pass_time()
        written += connection.output()
        FrameReader().feed(bytes(written.removeprefix(PROTOCOL_HEADER)))
        assert connection.waiting_bytes == 0
        assert self._bench.broker.unfinished.total_bytes == 0

    def close(self) -> None:
        """Let go of what the store's answers come by."""
        self._bench.close()

    def _pieces(self) -> list[bytes]:
        rng = self._random
        said = [
            PROTOCOL_HEADER,
            _encoded(Assembly(0, ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"))),
            _encoded(Assembly(0, ConnectionTuneOk(rng.choice((3, 7)), 65_535, 0))),
            _encoded(Assembly(0, ConnectionOpen(""))),
            _encoded(Assembly(1, SessionAttach(rng.choice((b"s", b"t", b"u" * 300))))),
        ]
        said += [self._next() for _ in range(rng.randrange(1, 12))]
        return spoilt(rng, said) if rng.random() < 0.5 else said

    def _next(self) -> bytes:
        rng = self._random
        channel = rng.choice((1, 1, 1, 1, 1, 0, 2, 9))
        at = rng.random()
        if at < 0.4:
            body = bytes(rng.choice((0, 5, 5, 5, 300, 3_000)))
            parts = content(rng.choice(_NAMES), body, priority=rng.randrange(10))
            transfer = MessageTransfer(rng.choice(("", "", "amq.topic")), rng.randrange(2), 0)
            return _encoded(Assembly(channel, transfer, rng.random() < 0.3, **parts))
        if at < 0.7:
            return _encoded(Assembly(channel, rng.choice(_TYPICAL), rng.random() < 0.3))
        cls = rng.choice([*(CONTROLS if at < 0.85 else COMMANDS).values()])
        try:
            return _encoded(Assembly(channel, self._made(cls)))
        except ValueError:  # a value that does not fit its field
            return _encoded(Assembly(channel, ExecutionSync()))

    def _made(self, cls: Any) -> Any:
        """A control or command with some values."""
        values: dict[str, Any] = {}
        # Fields of a class and of its table are in one order, but may be named otherwise.
        for field, (_, kind, is_needed, _) in zip(fields(cls), cls.FIELDS, strict=True):
            if is_needed or self._random.random() < 0.5:
                values[field.name] = self._value(kind)
        return cls(**values)

    def _value(self, kind: str) -> Any:
        rng = self._random
        values: dict[str, Any] = {
            "bit": rng.random() < 0.5,
            "map": rng.choice(({}, _NESTED)),
            "sequence-set": rng.choice(_RANGES),
            "byte-ranges": (),
            "array": (),
            "uint8": rng.choice(_NUMBERS),
            "uint16": rng.choice(_NUMBERS),
        }
        if kind in values:
            return values[kind]
        if kind.startswith("str"):
            return rng.choice(_NAMES)
        if kind.startswith("vbin"):
            return rng.choice((b"", b"s", b"x" * 70))
        if kind == "composite:dtx.xid":
            return DtxXid(1, rng.choice((b"g", b"")), rng.choice((b"1", b"2")))
        return rng.choice((*_NUMBERS, *_LARGE))


def _encoded(assembly: Assembly) -> bytes:
    return b"".join(frame.encoded for frame in frames_of(assembly, 4_096))
