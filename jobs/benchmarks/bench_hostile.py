"""A hostile peer beside an honest one: python -m jobs.benchmarks.bench_hostile [NAME ...].

`sparkstore serve` runs on a root of its own, on loopback, where everybody may use `open.#` and
`amq.topic` and nothing else. An honest client sends durable messages, one after the other, and
waits for each to be accepted; first alone, then beside each attack below. Printed for each:

    broker ms    processor time of the broker's loop between an honest send and its answer, at p50
                 and p99: how much of others' work an honest client waits for
    latency ms   what the honest client saw, on this machine, with attackers on the same cores
    loop         share of a core that the loop took meanwhile
    shots        frames, or whatever the attack is made of

An attack lasts `--seconds`, or so many shots as it says. Exit code 1 if the broker's processor time
at p99 is more than `--most-ms` (20) above that alone, the broker did not live, or an attack got
what must be refused. An attack is a function with `@attack`: it gets a `Door` and yields after each
shot; `Foe` speaks for it. Those on the store service have a broker without AMQP, whose honest
client is a member, and the processor time is of all its threads.

Lines on standard error, JSON on standard output. Run it on a machine that does nothing else: the
processor time of one thread rises with what its neighbours do.
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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    Flow,
    Open,
    Received,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.store import protocol as wire
from jobs.benchmarks.amqp_load import message, receive_all, send_all, transfers
from jobs.benchmarks.machine import BUILD, describe, percentile
from tests.support.stores.raw_member import RawMember, create, enqueue

SETTINGS = """
[security]
permissions = [
    {who = ["*"], address = "open.#", allow = ["read", "write", "create"]},
    {who = ["*"], address = "amq.topic", allow = ["read", "write", "create"]},
    {who = ["*"], address = "temporary", allow = ["read", "write", "create"]},
]
"""
SELECTOR = "apache.org:selector-filter:string"
WINDOW = (1 << 31) - 1
BODY = b"\x00\x53\x75\xa0\x01x"
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
_TIMEOUT_S = 30
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE
_FORK = multiprocessing.get_context("fork")
"""An attacker in the honest client's process would hold up the client itself: one interpreter."""


class Door(NamedTuple):
    """Where a broker listens: for AMQP clients, or its store service for members."""

    host: str
    port: int
    members: Path | None = None
    is_tls: bool = False

    def connect(self) -> socket.socket:
        """A connected socket for AMQP."""
        peer = socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TRUSTING.wrap_socket(peer) if self.is_tls else peer


class Granted(Exception):
    """The broker gave what it must refuse."""


class Foe:
    """A connection with one session, that writes what it likes and throws away what it is told."""

    def __init__(self, door: Door, *, reads: bool = True, **fields: Any) -> None:
        self.socket = door.connect()
        init = encoded_frame(SaslInit("ANONYMOUS", b""), kind=SASL_FRAME)
        self.write(SASL_HEADER.encoded() + init + AMQP_HEADER.encoded())
        opened = Open(f"foe-{id(self)}-{time.monotonic_ns()}", **fields)
        self.send(opened, Begin(None, 0, WINDOW, WINDOW))
        if reads:
            threading.Thread(target=self._discard, daemon=True).start()

    def send(self, *performatives: Composite) -> None:
        """Frames on channel 0."""
        self.write(b"".join(map(encoded_frame, performatives)))

    def transfer(self, number: int, payload: bytes, handle: int = 0, **fields: Any) -> None:
        """A delivery in one frame, settled; unless `fields` say otherwise."""
        options = {"settled": True, **fields}
        transfer = Transfer(handle, number, number.to_bytes(4, "big"), 0, **options)
        self.write(transfer_frame(0, transfer, len(payload)) + payload)

    def write(self, encoded: bytes) -> None:
        """All of it."""
        self.socket.sendall(encoded)

    def receiver(self, source: Source, handle: int = 0, credit: int = 0, name: str = "") -> None:
        """Attach as a receiver, with credit."""
        name = name or f"r{handle}"
        self.send(Attach(name, handle, True, source=source, target=Target()))
        self.send(Flow(0, WINDOW, 0, WINDOW, handle, 0, credit))

    def sender(self, address: str, handle: int = 0) -> None:
        """Attach as a sender, and wait for credit."""
        target = Target(address)
        self.send(Attach(f"s{handle}", handle, False, None, None, Source(), target, None, False, 0))
        time.sleep(0.3)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _discard(self) -> None:
        with suppress(OSError):
            while self.socket.recv(1 << 18):
                pass


class Hearing(Foe):
    """One that listens to what it is told."""

    def __init__(self, door: Door) -> None:
        super().__init__(door, reads=False)
        self._decoder = FrameDecoder(1 << 20)
        self._headers = 2

    def wait_for(self, kind: type[Composite]) -> Any:
        """The next of a kind; what comes before it is passed over."""
        while True:
            while self._headers and self._decoder.next_header() is not None:
                self._headers -= 1
                if self._headers:
                    self._skip_sasl()
            while not self._headers and (frame := self._decoder.next_frame()) is not None:
                if frame.start != frame.end:
                    performative = read_performative(frame.encoded, frame.start, frame.end)[0]
                    if isinstance(performative, kind):
                        return performative
            self._read()

    def _skip_sasl(self) -> None:
        """Two frames: what there is, and that it went well."""
        left = 2
        while left:
            if self._decoder.next_frame() is None:
                self._read()
            else:
                left -= 1

    def _read(self) -> None:
        received = self.socket.recv(1 << 16)
        if not received:
            raise ConnectionError("the broker hung up on an honest client")
        self._decoder.feed(received)


class Honest(Hearing):
    """Sends a message and waits for its outcome."""

    def __init__(self, door: Door) -> None:
        super().__init__(door)
        self._number = 0
        target = Target("open.honest")
        self.send(Attach("out", 0, False, None, None, Source(), target, None, False, 0))
        self.wait_for(Flow)

    def put(self) -> None:
        """One durable message, accepted."""
        self.transfer(self._number, DURABLE + BODY, settled=False)
        self._number += 1
        disposition = self.wait_for(Disposition)
        if not isinstance(disposition.state, Accepted):
            message = f"an honest message was not accepted: {disposition}"
            raise TypeError(message)


class HonestMember(RawMember):
    """A member of the store service that puts a message and waits until it is durable."""

    def __init__(self, door: Door) -> None:
        assert door.members is not None
        super().__init__(door.members)
        self.hello()
        self._request = 1
        self.ask(self._request, create())

    def put(self) -> None:
        """One message."""
        self._request += 1
        if refusals := self.ask(self._request, enqueue(self.ids(1))):
            message = f"an honest message was refused: {refusals}"
            raise TypeError(message)


# ---------------------------------------------------------------------------------------- attacks


class Attack(NamedTuple):
    """One way to cost much."""

    name: str
    text: str
    shoot: Callable[[Door], Iterator[None]]
    is_on_service: bool = False


ATTACKS: list[Attack] = []
ALONE = Attack("alone", "", lambda _door: iter(()))
MEMBER_ALONE = Attack("member alone", "", lambda _door: iter(()), is_on_service=True)


Shoot = Callable[[Door], Iterator[None]]


def attack(name: str, *, is_on_service: bool = False) -> Callable[[Shoot], None]:
    """List an attack; its docstring says what it is."""

    def add(shoot: Shoot) -> None:
        text = (shoot.__doc__ or "").splitlines()[0]
        ATTACKS.append(Attack(name, text, shoot, is_on_service))

    return add


def selecting(text: str, address: str) -> Source:
    """A source with a selector."""
    return Source(address, filter={Symbol(SELECTOR): Described(Symbol(SELECTOR), text)})


@attack("compile")
def compile_for_nobody(door: Door) -> Iterator[None]:
    """Selectors of 8 kB, attached and detached where nobody may receive, and where all may."""
    foe = Foe(door)
    text = "1" + "+1" * 1_000 + " = a"
    for address in ("closed", "open.q") * 100_000:
        foe.send(Attach("l", 0, True, source=selecting(text, address), target=Target()))
        foe.send(Detach(0, closed=True))
        yield


@attack("dispositions")
def dispositions_over_ranges(door: Door) -> Iterator[None]:
    """Dispositions of 30 bytes over all that is unsettled, each with another state."""
    foe = Foe(door)
    foe.sender("open.range")
    for number in range(20_000):
        foe.transfer(number, BODY)
        if number % 500 == 499:
            time.sleep(0.1)
    foe.receiver(Source("open.range"), 1, credit=20_000)
    time.sleep(2)
    for number in range(1_000_000):
        foe.send(Disposition(True, 0, WINDOW, state=Received(0, number)))
        yield


@attack("topics")
def topic_patterns(door: Door) -> Iterator[None]:
    """Ten subscriptions of 248 words, and messages of as many."""
    foe = Foe(door)
    for handle in range(10):
        words = ["#", *["a", "*"] * 123]
        words[2 * handle + 1] = "*"
        foe.receiver(Source("amq.topic/" + ".".join(words)), handle + 1)
    key = ".".join(["a"] * 255)
    foe.sender(f"amq.topic/{key}")
    for number in range(1_000_000):
        foe.transfer(number, BODY)
        yield


@attack("like")
def like_patterns(door: Door) -> Iterator[None]:
    """As many LIKE patterns as there may be, on a property of as many characters."""
    foe = Foe(door)
    one = "p LIKE '%" + "a" * 50 + "b" + "a" * 48 + "%'"
    foe.receiver(selecting(" OR ".join([one] * 10), "open.like"), 1, credit=100)
    foe.sender("open.like")
    value = b"\xa1\x01p\xb1" + (4_000).to_bytes(4, "big") + b"a" * 4_000
    head = (len(value) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big")
    message = b"\x00\x53\x74\xd1" + head + value + BODY
    for number in range(1_000_000):
        foe.transfer(number, message)
        yield


@attack("headers")
def large_headers(door: Door) -> Iterator[None]:
    """Header sections of as many little properties as a frame has."""
    foe = Foe(door)
    foe.sender("open.headers")
    entries = b"\xa1\x01k\x40" * 1_000
    head = (len(entries) + 4).to_bytes(4, "big") + (2_000).to_bytes(4, "big")
    message = b"\x00\x53\x74\xd1" + head + entries + BODY
    for number in range(1_000_000):
        foe.transfer(number, message)
        yield


@attack("flow properties")
def flow_properties(door: Door) -> Iterator[None]:
    """Flows with properties of thousands of items, on many links."""
    foe = Foe(door)
    for handle in range(100):
        foe.receiver(Source("open.flows"), handle)
    large = {Symbol("p"): [0] * 9_000}
    frames = [
        encoded_frame(Flow(0, WINDOW, 0, WINDOW, handle, 0, 1, properties=large))
        for handle in range(100)
    ]
    for number in range(1_000_000):
        foe.write(frames[number % 100])
        yield


@attack("little frames")
def little_frames(door: Door) -> Iterator[None]:
    """Flows that ask for an answer, as fast as they are read."""
    foe = Foe(door)
    frames = encoded_frame(Flow(0, WINDOW, 0, WINDOW, echo=True)) * 100
    for _ in range(1_000_000):
        foe.write(frames)
        yield


@attack("links")
def attach_and_detach(door: Door) -> Iterator[None]:
    """Links that come and go."""
    foe = Foe(door)
    attached = Attach("l", 0, True, source=Source("open.links"), target=Target())
    frames = (encoded_frame(attached) + encoded_frame(Detach(0, closed=True))) * 20
    for _ in range(1_000_000):
        foe.write(frames)
        yield


@attack("unfinished")
def unfinished_deliveries(door: Door) -> Iterator[None]:
    """Deliveries that are begun in little pieces and never end."""
    foe = Foe(door)
    foe.sender("open.unfinished")
    piece = b"\x00\x53\x75\xb0\x00\xff\xff\xff"
    for number in range(1_000_000):
        foe.transfer(0, piece if not number else b"xx", settled=False, more=True)
        yield


@attack("flood")
def flood_of_messages(door: Door) -> Iterator[None]:
    """Durable messages of 1 KiB to another queue, as fast as they are accepted."""
    return _flood(door, lambda: None)


@attack("flood of takers")
def flood_of_takers(door: Door) -> Iterator[None]:
    """The same, and as many are taken and accepted, by turns."""
    return _flood(door, lambda: receive_all(door.port, "open.flood", _FLOOD))


_FLOOD = 2_000


def _flood(door: Door, after: Callable[[], object]) -> Iterator[None]:
    stream = transfers(_FLOOD, message(1024))
    for _ in range(100_000):
        send_all(door.port, "open.flood", [stream], _FLOOD)
        after()
        yield


@attack("silent")
def silent_sockets(door: Door) -> Iterator[None]:
    """Sockets that never say anything."""
    silent = []
    for _ in range(2_000):
        with suppress(OSError):
            silent.append(socket.create_connection(door[:2], timeout=_TIMEOUT_S))
        yield
    time.sleep(1)


@attack("temporary names")
def names_of_temporary_queues(door: Door) -> Iterator[None]:
    """Names that a rule for `temporary` must not open: each is refused."""
    foe = Hearing(door)
    names = ("temporary::closed.new", "closed.new::temporary", "temporary", "temporary-mine")
    for name in names * 100_000:
        foe.send(Attach("l", 0, True, source=Source(name), target=Target()))
        if foe.wait_for(Attach).source is not None:
            raise Granted(name)
        foe.wait_for(Detach)
        foe.send(Detach(0, closed=True))
        yield


@attack("first frames", is_on_service=True)
def first_frames(door: Door) -> Iterator[None]:
    """First frames of 8 MB to the store service: nothing of them is echoed."""
    assert door.members is not None
    frame = wire.frame_packer()(wire.HELLO, (wire.VERSION, "x" * 8_000_000))
    for _ in range(100_000):
        foe = socket.socket(socket.AF_UNIX)
        foe.settimeout(_TIMEOUT_S)
        foe.connect(str(door.members))
        with suppress(BrokenPipeError, ConnectionResetError):
            foe.sendall(frame)
        echoed = b""
        with suppress(ConnectionResetError):
            while piece := foe.recv(1 << 18):
                echoed += piece
        if len(echoed) > wire.MAX_HELLO_BYTES:
            raise Granted(f"{len(echoed)} bytes are echoed")
        foe.close()
        yield


# --------------------------------------------------------------------------------------- measures


class Broker:
    """`sparkstore serve` on a root, in a process of its own."""

    def __init__(self, folder: Path, *, is_service: bool) -> None:
        config = folder / "sparkstore.toml"
        config.write_text(SETTINGS)
        command = [sys.executable, "-m", "broker_shim.serve.command", str(folder / "root")]
        members = folder / "members"
        doors = ["--no-amqp", "--store-socket", str(members)]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [*command, "--config", str(config)]
            + (doors if is_service else ["--listen", "127.0.0.1:0"]),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.search(r"amqp://([\d.]+):(\d+)", line)
        if match is None and not is_service:
            message = f"the broker did not start: {(folder / 'log').read_text()}"
            raise RuntimeError(message)
        self.door = Door(match[1], int(match[2])) if match else Door("", 0, members)
        main = self._process.pid
        self._tasks = Path(f"/proc/{main}/task")
        self._threads = f"{'*' if is_service else main}/schedstat"

    def loop_s(self) -> float:
        """Processor time of the loop's thread; of all threads of the store service."""
        return sum(map(_ran_ns, self._tasks.glob(self._threads))) / 1e9

    def memory_mib(self) -> float:
        """Resident now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", status)
        assert match is not None
        return int(match[1]) / 1024

    @property
    def lives(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """A clean end, or kill."""
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Figures(NamedTuple):
    """What an honest client's sends cost."""

    broker_ms: list[float]
    latency_ms: list[float]
    loop_share: float
    memory_mib: float
    shots: int
    granted: str = ""

    def line(self) -> str:
        """For people."""
        broker_ms = [percentile(self.broker_ms, share) for share in (0.5, 0.99)]
        return (
            f"broker ms {broker_ms[0]:6.2f} {broker_ms[1]:7.2f}"
            f"   latency ms {percentile(self.latency_ms, 0.5):6.1f}"
            f" {percentile(self.latency_ms, 0.99):7.1f}   loop {self.loop_share:4.0%}"
            f"   {self.memory_mib:4.0f} MiB   {len(self.latency_ms):5} sends  {self.shots:7} shots"
        )


def measured(broker: Broker, seconds: float, attack: Attack) -> Figures:
    """An honest client for a while, beside an attack."""
    over, begun = _FORK.Event(), _FORK.Event()
    shots = _FORK.Value("q", 0, lock=False)  # its writer may be killed at any time
    granted = _FORK.SimpleQueue()

    def attacking() -> None:
        try:
            for _ in attack.shoot(broker.door):
                begun.set()
                shots.value += 1
                if over.is_set():
                    break
        except OSError:
            pass  # it was hung up on
        except Granted as reason:
            granted.put(str(reason))
        begun.set()

    honest = HonestMember(broker.door) if attack.is_on_service else Honest(broker.door)
    foe = _FORK.Process(target=attacking, daemon=True)
    foe.start()
    begun.wait(_TIMEOUT_S)
    broker_ms, latency_ms = list[float](), list[float]()
    began_s, loop_s = time.monotonic(), broker.loop_s()
    while time.monotonic() - began_s < seconds:
        before_s, sent_s = broker.loop_s(), time.monotonic()
        honest.put()
        latency_ms.append((time.monotonic() - sent_s) * 1e3)
        broker_ms.append((broker.loop_s() - before_s) * 1e3)
        time.sleep(0.005)
    share = (broker.loop_s() - loop_s) / (time.monotonic() - began_s)
    over.set()
    memory_mib = broker.memory_mib()
    foe.join(1.0)
    foe.kill()
    why = "" if granted.empty() else granted.get()
    return Figures(broker_ms, latency_ms, share, memory_mib, shots.value, why)


def _kinds(attacks: list[Attack]) -> set[bool]:
    return {attack.is_on_service for attack in attacks}


def _ran_ns(schedstat: Path) -> int:
    """Processor time of a thread; none of one that has ended meanwhile."""
    try:
        return int(schedstat.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def main() -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of attacks; all without any")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--most-ms", type=float, default=20.0)
    options = parser.parse_args()
    known = {attack.name: attack for attack in ATTACKS}
    if unknown := set(options.names) - set(known):
        parser.error(f"no attack {', '.join(sorted(unknown))}: say some of {', '.join(known)}")
    print(describe(), file=sys.stderr)
    rows: dict[str, Any] = {}
    failed = []
    folder = Path(tempfile.mkdtemp(prefix="hostile-", dir=BUILD))
    asked = [known[name] for name in options.names or known]
    alone = [attack for attack in (ALONE, MEMBER_ALONE) if attack.is_on_service in _kinds(asked)]
    for attack in [*alone, *asked]:
        (folder / "root").exists() and shutil.rmtree(folder / "root")
        broker = Broker(folder, is_service=attack.is_on_service)
        try:
            figures = measured(broker, options.seconds, attack)
            is_alive = broker.lives
        finally:
            broker.stop()
        p99_ms = percentile(figures.broker_ms, 0.99)
        rows[attack.name] = {
            "broker_p99_ms": p99_ms,
            "latency_p99_ms": percentile(figures.latency_ms, 0.99),
        }
        print(f"{attack.name:16} {figures.line()}", file=sys.stderr)
        before = rows[(MEMBER_ALONE if attack.is_on_service else ALONE).name]["broker_p99_ms"]
        if not is_alive or figures.granted or p99_ms > before + options.most_ms:
            failed.append(f"{attack.name} {figures.granted}".strip())
    shutil.rmtree(folder)
    if failed:
        print(f"more than {options.most_ms:g} ms, or granted: {', '.join(failed)}", file=sys.stderr)
    print(json.dumps(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
