"""The store service beside what the machine does by itself: `make bench-service`.

    python -m jobs.benchmarks.bench_service [--n N] [--rounds N] [--json]

One connection on a unix socket; each request is one DO that enqueues one message of 256 bytes. The
client is as thin as it can be: its frames are made beforehand, it only writes, reads and counts.
It and the service are processes of their own. `N in flight` means that a new request is sent as
soon as an answer leaves room. Beside the figures: a bare append + fdatasync, and what two processes
need to send 256 bytes to and fro over a unix socket.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from broker_shim.store import protocol as wire
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median, percentile
from sparkstore.core.records import Kind, MessageHeader, Record
from tests.support.stores.raw_member import RawMember, create

SIZE = 256
FLIGHTS = (1, 32, 1000)
_BURST = 64
_TOGETHER = 50
"""Messages in one frame, as a member's broker sends what one read of its peer brought."""
_HEADER = MessageHeader(
    protocol="amqp-1.0",
    header=bytes(60),
    content_type="text/plain",
    correlation_id="corr",
    header_bytes=60,
    body_bytes=SIZE,
    properties=(("k", "v"),),
)


class Figure(NamedTuple):
    """Requests a second; p50 and p99 of one in ms; CPU of the service in µs a request."""

    per_second: float
    p50_ms: float
    p99_ms: float
    service_us: float


def run(folder: Path, count: int) -> dict[str, Figure]:
    """Every number in flight on one fresh service."""
    path = folder / "s"
    command = [sys.executable, "-m", "broker_shim.serve.command", str(folder / "root")]
    command += ["--no-amqp", "--store-socket", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service:
        assert service.stdout is not None
        assert service.stdout.readline().startswith(b"READY")
        with RawMember(path, "bench") as member:
            member.hello()
            member.ask(1, create("bench"))
            request = 2
            request = _flight(member, service.pid, request, 3000, 100)[1]  # warm-up
            figures = {}
            for flight in FLIGHTS:
                share = max(500, count // 20) if flight == 1 else count
                figure, request = _flight(member, service.pid, request, share, flight)
                figures[f"{flight} in flight"] = figure
            figure, request = _flight(member, service.pid, request, count, FLIGHTS[-1], _TOGETHER)
            figures[f"the same, {_TOGETHER} a frame"] = figure
        service.terminate()
        service.wait(30)
    return figures


def _flight(
    member: RawMember, pid: int, request: int, count: int, flight: int, together: int = 1
) -> tuple[Figure, int]:
    """So many requests with so many of them unanswered; and the next request number."""
    count -= count % together
    frames = _frames(member.ids(count), request, count, together)
    sent_at, took = [0.0] * count, []
    sent = done = 0
    cpu_s = _cpu_s(pid)
    begun = time.perf_counter()
    while done < count:
        room = min(flight - (sent - done), count - sent)
        room -= room % together
        if room >= min(_BURST, flight, count - sent) - together + 1 and room:
            now = time.perf_counter()
            sent_at[sent : sent + room] = [now] * room
            member.peer.sendall(b"".join(frames[sent // together : (sent + room) // together]))
            sent += room
            continue
        frame = member.hears()
        assert frame is not None
        assert frame[0] == wire.DONE
        assert not frame[1][1]
        through = frame[1][0] - request + 1
        now = time.perf_counter()
        took += [now - at for at in sent_at[done:through]]
        done = through
    wall_s = time.perf_counter() - begun
    used_us = (_cpu_s(pid) - cpu_s) / count * 1e6
    p50, p99 = (percentile(took, share) * 1e3 for share in (0.5, 0.99))
    return Figure(count / wall_s, p50, p99, used_us), request + count


def _frames(first_id: int, request: int, count: int, together: int) -> list[bytes]:
    pack, body = wire.frame_packer(), os.urandom(SIZE)
    if together > 1:
        record, contents = Record(Kind.ENQUEUED, 0, "bench"), [(_HEADER, body)] * together
        starts = range(0, count, together)
        ids = [[*range(first_id + start, first_id + start + together)] for start in starts]
        return [
            pack(wire.BATCH, (request + start, record, some, contents))
            for start, some in zip(starts, ids, strict=True)
        ]
    return [
        pack(
            wire.DO,
            (
                request + number,
                (Record(Kind.ENQUEUED, 0, "bench", first_id + number, message=_HEADER, body=body),),
            ),
        )
        for number in range(count)
    ]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def hop_ms(count: int = 2000) -> list[float]:
    """Milliseconds to send 256 bytes to another process over a unix socket, and back."""
    ours, theirs = socket.socketpair()
    code = "import socket,sys; s = socket.socket(fileno=int(sys.argv[1]))\n"
    code += "while got := s.recv(512): s.sendall(got)"
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    took, content = [], bytes(SIZE)
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as echo:
        theirs.close()
        for _ in range(count):
            start = time.perf_counter()
            ours.sendall(content)
            ours.recv(512)
            took.append((time.perf_counter() - start) * 1e3)
        ours.close()
        echo.wait(30)
    return took


def main() -> int:
    """Rounds, medians, ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=60_000, help="requests a phase")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[Figure]] = defaultdict(list)
    raw: list[float] = []
    hops: list[float] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
            raw.append(median(append_and_sync_ms(Path(scratch), SIZE * 2)))
            hops.append(median(hop_ms()))
            for name, figure in run(Path(scratch), options.n).items():
                rounds[name].append(figure)
    figures = {
        name: Figure(*(median(column) for column in zip(*rows, strict=True)))
        for name, rows in rounds.items()
    }
    bare_ms = median(raw) + median(hops)
    if options.json:
        print(json.dumps({"append_fdatasync_ms": median(raw), "hops_ms": median(hops), **figures}))
        return 0
    print(f"machine: {describe()}; bodies of {SIZE} bytes, {options.n} requests a phase")
    print(f"bare append + fdatasync {median(raw):.3f} ms, two socket hops {median(hops):.3f} ms")
    print(
        f"{'':22} {'requests/s':>11} {'p50':>9} {'p99':>9} {'service CPU':>12} {'p50 ÷ bare':>11}"
    )
    for name, one in figures.items():
        print(
            f"{name:22} {one.per_second:11,.0f} {one.p50_ms:6.3f} ms {one.p99_ms:6.3f} ms"
            f" {one.service_us:9.1f} µs {one.p50_ms / bare_ms:10.2f}x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
