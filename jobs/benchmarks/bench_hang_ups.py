"""What strangers leave in memory who come and go: python -m jobs.benchmarks.bench_hang_ups.

`sparkstore serve` on a root of its own, with AMQP 1.0 and 0-10, members and metrics, each kind in a
process of its own:

    tcp      connect, and hang up
    tls      shake hands, and hang up: what a load balancer's probe does
    0-10     begin a control on every channel before open, and never end it
    metrics  connect to the port of metrics, say nothing, and hang up
    control  the same at the socket of administrators
    service  the same at the socket of members

Printed for each: MiB resident before, after `--count` (20,000) connects, and 10 s later. Exit code
1 if more than `--most-mib` (20) stay. Lines on standard error, JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from broker_shim.framing.frames import FIRST_FRAME, FIRST_SEGMENT, PROTOCOL_HEADER, Frame
from jobs.benchmarks.machine import BUILD, describe
from tests.support.amqp.certificates import Authority

_WARM, _WAIT_S, _TIMEOUT_S, _STRANGERS = 1_000, 10.0, 30, 2
_TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TRUSTING.check_hostname, _TRUSTING.verify_mode = False, ssl.CERT_NONE
_ENDLESS = PROTOCOL_HEADER + b"".join(
    Frame(1, FIRST_SEGMENT | FIRST_FRAME, channel, bytes(4_000)).encoded for channel in range(200)
)


class Places(NamedTuple):
    """Where strangers can connect: two ports, and the folder of the sockets."""

    amqp: int
    metrics: int
    root: Path


def tcp(places: Places) -> None:
    """Connect, and hang up."""
    socket.create_connection(("127.0.0.1", places.amqp), _TIMEOUT_S).close()


def tls(places: Places) -> None:
    """Shake hands, and hang up."""
    with socket.create_connection(("127.0.0.1", places.amqp), _TIMEOUT_S) as peer:
        _TRUSTING.wrap_socket(peer).close()


def endless(places: Places) -> None:
    """Begin a command on each channel before open, and hang up."""
    with (
        socket.create_connection(("127.0.0.1", places.amqp), _TIMEOUT_S) as peer,
        suppress(OSError),
    ):
        peer.sendall(_ENDLESS)
        while peer.recv(1 << 16):
            pass


def silent_monitor(places: Places) -> None:
    """Connect to the port of metrics, and hang up."""
    socket.create_connection(("127.0.0.1", places.metrics), _TIMEOUT_S).close()


def silent_administrator(places: Places) -> None:
    """Connect to the socket of administrators, and hang up."""
    _connect_to(places.root / "control.sock")


def silent_member(places: Places) -> None:
    """Connect to the socket of members, and hang up."""
    _connect_to(places.root / "service.sock")


def _connect_to(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(_TIMEOUT_S)
        peer.connect(str(path))


KINDS = {
    "tcp": tcp,
    "tls": tls,
    "0-10": endless,
    "metrics": silent_monitor,
    "control": silent_administrator,
    "service": silent_member,
}


class Served:
    """`sparkstore serve` in a process of its own."""

    def __init__(self, folder: Path, *, is_tls: bool) -> None:
        command = [sys.executable, "-m", "broker_shim.serve.command", str(folder / "root")]
        root = folder / "root"
        command += ["--listen", "127.0.0.1:0", "--amqp-0-10", "same"]
        command += ["--metrics-listen", "127.0.0.1:0", "--store-socket", str(root / "service.sock")]
        if is_tls:
            pair = Authority(folder).issue_server()
            command += ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ports = re.findall(r"(?:amqps?|http)://[\d.]+:(\d+)", line)
        assert len(ports) >= 2, line + (folder / "log").read_text()
        self.places = Places(int(ports[0]), int(ports[-1]), root)

    def memory_mib(self) -> float:
        """Resident now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", status)
        assert match is not None
        return int(match[1]) / 1024

    def stop(self) -> None:
        """A clean end."""
        self.process.terminate()
        self.process.wait(_TIMEOUT_S)
        self._log.close()


def connect(kind: str, places: Places, times: int) -> None:
    """So many, by several strangers."""
    strangers = [
        multiprocessing.Process(target=_repeat, args=(kind, places, times // _STRANGERS))
        for _ in range(_STRANGERS)
    ]
    for stranger in strangers:
        stranger.start()
    for stranger in strangers:
        stranger.join()


def _repeat(kind: str, places: Places, times: int) -> None:
    for _ in range(times):
        with suppress(OSError):
            KINDS[kind](places)


def main() -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help="one of the above; all without any"
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--most-mib", type=float, default=20.0)
    options = parser.parse_args()
    print(describe(), file=sys.stderr)
    figures: dict[str, dict[str, float]] = {}
    for kind in options.kinds or KINDS:
        folder = Path(tempfile.mkdtemp(prefix="hang-ups-", dir=BUILD)).resolve()
        served = Served(folder, is_tls=kind == "tls")
        connect(kind, served.places, _WARM)
        before, began_s = served.memory_mib(), time.monotonic()
        connect(kind, served.places, options.count)
        took_s, after = time.monotonic() - began_s, served.memory_mib()
        time.sleep(_WAIT_S)
        later = served.memory_mib()
        served.stop()
        shutil.rmtree(folder)
        figures[kind] = {"before_mib": before, "after_mib": after, "later_mib": later}
        text = f"{kind:6} {options.count} in {took_s:5.0f} s   MiB {before:6.0f} {after:6.0f}"
        print(f"{text} {later:6.0f}, 10 s later", file=sys.stderr)
    print(json.dumps(figures))
    grown = max(row["after_mib"] - row["before_mib"] for row in figures.values())
    return 1 if grown > options.most_mib else 0


if __name__ == "__main__":
    sys.exit(main())
