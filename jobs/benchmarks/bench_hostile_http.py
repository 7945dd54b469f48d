"""A hostile peer at the HTTP port: python -m jobs.benchmarks.bench_hostile_http [KIND ...].

`sparkstore serve --http` on a root of its own, on loopback, without TLS and with it. An honest
client of AMQP sends durable messages one by one, and a monitor asks GET /healthz on a new
connection ten times a second; first alone, then beside each kind of stranger:

    silent    connect, and say nothing
    head      send half a head
    body      send half a body
    byte      ask GET /healthz, read the answer, and send one byte more
    unread    ask for a page of 6 MiB, and read nothing
    answered  ask GET /healthz, read the answer, and hang up

Two processes make `--count` connects of a kind (20,000; of `unread` a tenth), `--per-second`
(1,000) as far as they get, and hold the last 400 each. Printed for each: MiB resident before,
meanwhile and after; milliseconds of a probe and of an honest send at p50 and p99; lines of log.
Exit code 1 if memory after it is more than 20 MiB above that before, a probe takes more than 500 ms
at p99 or gets no answer, or an honest send takes more than twice as long at p99 as alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from jobs.benchmarks.bench_hostile import _FORK, BODY, TRUSTING, Door, Foe, Honest
from jobs.benchmarks.machine import BUILD, describe, percentile
from tests.support.amqp.certificates import Authority

_TIMEOUT_S, _HELD, _STRANGERS, _WARM = 30, 400, 2, 1_000
_MOST_MIB, _MOST_PROBE_MS, _MOST_TIMES = 20.0, 500.0, 2.0
_AFTER_S, _ALONE_S = 12.0, 5.0
"""Until each stranger has been hung up on: more than a head may take."""
_HOST = b"Host: 127.0.0.1\r\n"
_PROBE = b"GET /healthz HTTP/1.1\r\n" + _HOST + b"\r\n"
_PAGE = b"GET /api/v1/queues/large/messages?limit=600 HTTP/1.1\r\n" + _HOST + b"\r\n"
_BODY = (
    b"PUT /api/v1/queues/q HTTP/1.1\r\n" + _HOST + b"Content-Type: application/json\r\n"
    b"Content-Length: 2\r\n\r\n{"
)


class Served:
    """`sparkstore serve --http` in a process of its own."""

    def __init__(self, folder: Path, *, is_tls: bool) -> None:
        command = [sys.executable, "-m", "broker_shim.serve.command", str(folder / "root")]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        if is_tls:
            pair = Authority(folder).issue_server()
            command += ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]
        self.is_tls, self._path = is_tls, folder / "log"
        self._log = self._path.open("w")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ports = [int(port) for port in re.findall(r"(?:amqps?|https?)://[\d.]+:(\d+)", line)]
        assert len(ports) == 2, line + self._path.read_text()
        self.door, self.http_port = Door("127.0.0.1", ports[0], is_tls=is_tls), ports[1]

    def connect(self, received_bytes: int | None = None) -> socket.socket:
        """A socket that is connected to the HTTP port, after the handshake of TLS."""
        peer = socket.socket()
        peer.settimeout(_TIMEOUT_S)
        if received_bytes is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
        peer.connect(("127.0.0.1", self.http_port))
        return TRUSTING.wrap_socket(peer) if self.is_tls else peer

    def memory_mib(self) -> float:
        """Resident now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", status)
        assert match is not None
        return int(match[1]) / 1024

    def line_count(self) -> int:
        """Lines of log so far."""
        return self._path.read_text().count("\n")

    def stop(self) -> None:
        """A clean end."""
        self.process.terminate()
        self.process.wait(_TIMEOUT_S)
        self._log.close()


def _says(words: bytes, *, reads: bool = False, then: bytes = b"") -> Callable[[Served], object]:
    def come(served: Served) -> socket.socket:
        peer = served.connect(4096 if words is _PAGE else None)
        peer.sendall(words)
        if reads:
            peer.recv(1 << 16)
            peer.sendall(then)
        return peer

    return come


def _answered(served: Served) -> None:
    peer = served.connect()
    peer.sendall(_PROBE)
    peer.recv(1 << 16)
    peer.close()


KINDS: dict[str, Callable[[Served], object]] = {
    "silent": _says(b""),
    "head": _says(b"GET /healthz HTTP/1.1\r\n"),
    "body": _says(_BODY),
    "byte": _says(_PROBE, reads=True, then=b"G"),
    "unread": _says(_PAGE),
    "answered": _answered,
}


class Figures(NamedTuple):
    """What an honest client and a monitor saw."""

    send_ms: list[float]
    probe_ms: list[float]
    failed_probes: int
    memory_mib: float
    connects: int

    def summary(self) -> dict[str, float]:
        """For programs."""
        return {
            "send_p50_ms": percentile(self.send_ms, 0.5),
            "send_p99_ms": percentile(self.send_ms, 0.99),
            "probe_p50_ms": percentile(self.probe_ms, 0.5),
            "probe_p99_ms": percentile(self.probe_ms, 0.99),
            "failed_probes": self.failed_probes,
            "connects": self.connects,
        }

    def line(self) -> str:
        """For people."""
        parts = [
            f"{name} ms {percentile(of, 0.5):6.1f} {percentile(of, 0.99):7.1f}"
            for name, of in (("send", self.send_ms), ("probe", self.probe_ms))
        ]
        return f"{'   '.join(parts)}   {self.connects:6} connects, {self.failed_probes} probes lost"


def strangers(served: Served, kind: str, count: int, per_second: float) -> int:
    """Connect so many times; returns how often that went well."""
    counts, connects = _FORK.SimpleQueue(), KINDS[kind]

    def repeat() -> None:
        held: deque[object] = deque(maxlen=_HELD)
        done = 0
        began_s = time.monotonic()
        for number in range(count // _STRANGERS):
            with suppress(OSError):
                held.append(connects(served))
                done += 1
            ahead_s = number * _STRANGERS / per_second - (time.monotonic() - began_s)
            if ahead_s > 0:
                time.sleep(ahead_s)
        counts.put(done)

    foes = [_FORK.Process(target=repeat, daemon=True) for _ in range(_STRANGERS)]
    for foe in foes:
        foe.start()
    done = sum(counts.get() for _ in foes)
    for foe in foes:
        foe.join()
    return done


def measured(served: Served, attack: Callable[[], int]) -> Figures:
    """An honest client and a monitor while an attack lasts."""
    over = threading.Event()
    connects, memory = list[int](), list[float]()

    def attacking() -> None:
        connects.append(attack())
        over.set()

    honest = Honest(served.door)
    probing, end = _FORK.SimpleQueue(), _FORK.Event()
    monitor = _FORK.Process(target=_monitor, args=(served, end, probing), daemon=True)
    monitor.start()
    thread = threading.Thread(target=attacking)
    thread.start()
    send_ms = list[float]()
    while not over.is_set():
        sent_s = time.monotonic()
        honest.put()
        send_ms.append((time.monotonic() - sent_s) * 1e3)
        memory.append(served.memory_mib())
        time.sleep(0.005)
    thread.join()
    end.set()
    probe_ms, failed = probing.get()
    monitor.join()
    honest.close()
    return Figures(send_ms, probe_ms, failed, max(memory), connects[0])


def _monitor(served: Served, end: Any, results: Any) -> None:
    probe_ms, failed = list[float](), 0
    while not end.is_set():
        began_s = time.monotonic()
        try:
            failed += _probed(served) != HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            failed += 1
        probe_ms.append((time.monotonic() - began_s) * 1e3)
        time.sleep(0.1)
    results.put((probe_ms, failed))


def _probed(served: Served) -> int:
    with closing(served.connect()) as peer:
        peer.sendall(_PROBE)
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        answer.read()
        return answer.status


def _fill(served: Served) -> None:
    """Make a queue whose page has 6 MiB: 600 messages with a property of 10 kB."""
    foe = Foe(served.door, reads=False)  # no thread of its own reads what is closed below
    foe.sender("large")
    value = b"\xa1\x01p\xb1" + (10_000).to_bytes(4, "big") + b"x" * 10_000
    head = (len(value) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big")
    for number in range(600):
        foe.transfer(number, b"\x00\x53\x74\xd1" + head + value + BODY)
        if not number % 50:
            time.sleep(0.05)
    time.sleep(1)
    with closing(served.connect()) as asker:
        asker.sendall(_PAGE)
        answer = http.client.HTTPResponse(asker)
        answer.begin()
        assert len(answer.read()) > 5 << 20, "the page is too small"
    foe.close()


def complaints(before: float, after: float, alone: Figures, beside: Figures) -> list[str]:
    """Say what is more than it may be."""
    slow_ms = percentile(beside.send_ms, 0.99)
    wrong = {
        f"{after - before:.0f} MiB stay": after - before > _MOST_MIB,
        "a probe got no answer": beside.failed_probes > 0,
        "probes are slow": percentile(beside.probe_ms, 0.99) > _MOST_PROBE_MS,
        "sends are slow": slow_ms > _MOST_TIMES * percentile(alone.send_ms, 0.99),
    }
    return [text for text, is_so in wrong.items() if is_so]


def run(scheme: str, kind: str, count: int, per_second: float) -> dict[str, object]:
    """Measure a kind at a broker of its own."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-http-", dir=BUILD)).resolve()
    served = Served(folder, is_tls=scheme == "https")
    times = count // 10 if kind == "unread" else count
    try:
        _fill(served)
        strangers(served, kind, _WARM, per_second)
        time.sleep(_AFTER_S)
        alone = measured(served, lambda: time.sleep(_ALONE_S) or 0)
        before = served.memory_mib()
        beside = measured(served, lambda: strangers(served, kind, times, per_second))
        time.sleep(_AFTER_S)
        after, lines = served.memory_mib(), served.line_count()
    finally:
        served.stop()
        shutil.rmtree(folder)
    wrong = complaints(before, after, alone, beside)
    memory = f"MiB {before:4.0f} {beside.memory_mib:4.0f} {after:4.0f}"
    print(f"{scheme:5} {kind:9} alone   {alone.line()}", file=sys.stderr)
    text = f"{scheme:5} {kind:9} beside  {beside.line()}   {memory}   {lines} lines"
    print(f"{text}   {', '.join(wrong)}", file=sys.stderr, flush=True)
    mib = [before, beside.memory_mib, after]
    return {"mib": mib, "alone": alone.summary(), "beside": beside.summary(), "wrong": wrong}


def main() -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="of strangers; all without any")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--per-second", type=float, default=1_000.0)
    parser.add_argument("--scheme", choices=["http", "https"], action="append")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}: say some of {', '.join(KINDS)}")
    print(describe(), file=sys.stderr)
    rows = {
        f"{scheme} {kind}": run(scheme, kind, options.count, options.per_second)
        for scheme in options.scheme or ["http", "https"]
        for kind in options.kinds or KINDS
    }
    print(json.dumps(rows))
    return 1 if any(row["wrong"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
