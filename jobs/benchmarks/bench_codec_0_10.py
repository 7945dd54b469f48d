"""The codec of AMQP 0-10 beside a copy of the same bytes.

    python -m jobs.benchmarks.bench_codec_0_10

    decode      transfers of 4 KiB as read from a socket, 64 KiB at a time: frames, command, header
                (delivery and message properties, two application headers), body
    encode      the same messages written, each with a header of its own, command and frames
    copy        the same bytes copied, a message's at a time, as Python copies a slice of bytes
    memcpy      and 64 KiB at a time, into a buffer that is there

One core, in turns, medians of processor time: the machine may be shared. No broker, no socket.
Lines on standard error, JSON on standard output; exit code 1 below 100 MB/s.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable

from broker_shim.amqp_0_10.commands import MessageTransfer
from broker_shim.amqp_0_10.controls import SessionAttach
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.frames import Frame, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment
from jobs.benchmarks.machine import describe, median

BODY = bytes(range(256)) * 16
READ_BYTES = 65_536
LEAST_MB_PER_S = 100.0
"""Of transfers of 4 KiB, in 10⁶ bytes of what is on the wire."""


def encoded(number: int) -> bytes:
    """One message."""
    header = HeaderSegment.of(
        MessageDeliveryProperties(routing_key="orders", delivery_mode=2, priority=4),
        MessageProperties(
            content_length=len(BODY), application_headers={"number": number, "region": "eu"}
        ),
    )
    transfer = Assembly(1, MessageTransfer("", 0, 0), header=header, body=BodySegment(BODY))
    return b"".join([frame.encoded for frame in frames_of(transfer)])


def encode(count: int) -> int:
    """Write so many; their bytes."""
    return sum(len(encoded(number)) for number in range(count))


def decode(stream: bytes) -> int:
    """Read what was written; its bytes."""
    reader, methods = FrameReader(), MethodReader(FramingLimits())
    for frame in frames_of(Assembly(1, SessionAttach(b"s"))):
        methods.take(frame)
    frames: deque[Frame] = deque(FrameReader().feed(encoded(0)))
    while frames:  # the first one makes the channel known
        methods.take(frames.popleft())
    size = 0
    for at in range(0, len(stream), READ_BYTES):
        frames.extend(reader.feed(stream[at : at + READ_BYTES]))
        while len(frames) >= 3:
            run = methods.take_run(frames)
            assert run is not None
            for header, body in zip(map(HeaderSegment, run.headers), run.bodies, strict=True):
                assert header.delivery.routing_key == "orders"
                assert header.message.application_headers is not None
                size += len(body)
    return size


def copy(stream: bytes, piece_bytes: int) -> int:
    """Copy it, so much at a time."""
    view = memoryview(stream)
    for at in range(0, len(stream), piece_bytes):
        bytes(view[at : at + piece_bytes])
    return len(stream)


def memcpy(stream: bytes) -> int:
    """Copy it into one buffer, again and again."""
    view, into = memoryview(stream), bytearray(READ_BYTES)
    for at in range(0, len(stream) - READ_BYTES, READ_BYTES):
        into[:] = view[at : at + READ_BYTES]
    return len(stream)


def mb_per_s(call: Callable[[], int], byte_count: int) -> float:
    """10⁶ bytes in a second of processor time."""
    gc.collect()
    started = time.process_time()
    call()
    return byte_count / (time.process_time() - started) / 1e6


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages in a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    one = len(encoded(1))
    stream = b"".join(map(encoded, range(options.count)))
    assert decode(stream) == options.count * len(BODY)
    calls: dict[str, Callable[[], int]] = {
        "decode": lambda: decode(stream),
        "encode": lambda: encode(options.count),
        "copy": lambda: copy(stream, one),
        "memcpy": lambda: memcpy(stream),
    }
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            rounds[name].append(mb_per_s(call, len(stream)))
    rates = {name: median(values) for name, values in rounds.items()}
    for name, value in rates.items():
        share = f"{rates['memcpy'] / value:.0f} x less than memcpy"
        print(f"{name:8} {value:10,.0f} MB/s   {share}", file=sys.stderr)
    print(json.dumps({"mb_per_s": rates, "machine": describe()}))
    return int(min(rates["decode"], rates["encode"]) < LEAST_MB_PER_S)


if __name__ == "__main__":
    sys.exit(main())
