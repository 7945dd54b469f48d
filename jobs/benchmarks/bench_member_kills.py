"""Members and their service killed (-9) at random, and what a member's send costs.

python -m jobs.benchmarks.bench_member_kills [--kills N] [--count N] [--sends N] [--rounds N]

service killed   under load of two members' stores: ms from the kill to the next call that is
told done, N times; what was told and what is there are compared (0 lost)
members killed   a service, two brokers and a consumer at each: N times one broker is killed and
started again; each message comes, and none is settled twice
send             p50 of persistent enqueues, one at a time: the store in the process, at a
service in another, and a chain of two stores in the process; rounds are
interleaved
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proton import Delivery
from proton.handlers import MessagingHandler
from proton.reactor import Container

from broker_shim.completion import Completion
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import BrokerStore, MessageHeader, Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from jobs.benchmarks.bench_members import Sender
from jobs.benchmarks.machine import BUILD, describe, median
from tests.support.roots.logs import until
from tests.support.stores.services import CONFIG_TEXT, ServiceProcess, short_folder
from tests.support.system.clients import SecondMode
from tests.support.system.processes import BrokerProcess
from tests.support.system.service_kill_loop import MEMBERS, Member, compare

_WAIT_S = 120.0
_BODY = b"x" * 1024


def service_gaps(folder: Path, kills: int) -> list[float]:
    """Milliseconds without an answer, for each kill; AssertionError if anything was lost."""
    with short_folder() as sockets:
        service = ServiceProcess(folder / "root", sockets / "s")
        service.start()
        members = [Member(service.path, number, 1) for number in range(MEMBERS)]
        gaps = []

        def told() -> int:
            return sum(member.told for member in members)

        for member in members:
            member.start()
        for _ in range(kills):
            before = told()
            until(lambda: told() > before + 500, _WAIT_S)  # noqa: B023
            service.kill()
            killed_s, before = time.monotonic(), told()
            service.start()
            while told() == before:
                time.sleep(0.0005)
            gaps.append(1000 * (time.monotonic() - killed_s))
        for member in members:
            member.stop()
        service.stop()
        service.close()
    assert [member.wrong for member in members] == [[]] * MEMBERS
    compare(folder / "root", members)
    return gaps


class Consumer(MessagingHandler):
    """Takes and accepts at a broker until that is gone or all is taken; settles after it."""

    def __init__(
        self, url: str, came: set[int], settled: Counter[int], is_over: Callable[[], bool]
    ) -> None:
        super().__init__(prefetch=50, auto_accept=False)
        self._url, self._came, self._settled, self._is_over = url, came, settled, is_over
        self._is_gone = False
        self._under_way: deque[int] = deque()

    def on_start(self, event: Any) -> None:
        """Connect, once."""
        self._connection = event.container.connect(self._url, reconnect=False)
        event.container.create_receiver(self._connection, "load", options=SecondMode())
        event.container.schedule(0.1, self)

    def on_message(self, event: Any) -> None:
        """Accept, and wait for the broker to settle."""
        self._came.add(event.message.id)
        self._under_way.append(event.message.id)
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        """The broker made one durable, in the order in which they were accepted."""
        self._settled[self._under_way.popleft()] += 1
        event.delivery.settle()

    def on_timer_task(self, event: Any) -> None:
        """Leave when nothing is left."""
        if self._is_over():
            self._connection.close()
        elif not self._is_gone:
            event.container.schedule(0.1, self)

    def on_transport_error(self, _event: Any) -> None:
        """The broker was killed."""
        self._is_gone = True


class Killed:
    """A broker that is killed and started again, and its consumer."""

    def __init__(self, socket: Path, number: int) -> None:
        self._where = (f"--store=unix:{socket}", f"--member=m{number}", "--listen=127.0.0.1:0")
        self.broker = BrokerProcess(*self._where)
        self.came: set[int] = set()
        self.settled: Counter[int] = Counter()
        self.is_over = False
        self._thread = threading.Thread(target=self._consume, daemon=True)

    def start(self) -> None:
        """Have its consumer begin."""
        self._thread.start()

    def kill(self) -> None:
        """As SIGKILL does; it is there again when this returns."""
        self.broker.kill()
        self.broker = BrokerProcess(*self._where)

    def stop(self) -> None:
        """All is taken."""
        self.is_over = True
        self._thread.join(_WAIT_S)
        self.broker.terminate()

    def _consume(self) -> None:
        while not self.is_over:
            url = self.broker.url
            Container(Consumer(url, self.came, self.settled, lambda: self.is_over)).run()
            time.sleep(0.05)


def members_killed(folder: Path, kills: int, count: int) -> tuple[int, int]:
    """How many messages were lost, and how many were settled twice."""
    dice = random.Random(1)
    with short_folder() as sockets:
        service = ServiceProcess(folder / "root", sockets / "s")
        (folder / "service.toml").write_text(CONFIG_TEXT + "member_grace_s = 0.5\n")
        service.start()
        brokers = [Killed(service.path, number) for number in range(2)]
        Container(Sender(brokers[0].broker.url, count)).run()
        for broker in brokers:
            broker.start()
        for done in range(kills):
            share = count * (done + 1) // (kills + 2)
            until(lambda: len(_all(brokers)) >= share, _WAIT_S)  # noqa: B023
            dice.choice(brokers).kill()
        until(lambda: len(_all(brokers)) == count, _WAIT_S)
        store = RemoteMessageStore(service.path)
        until(lambda: not store.recover().entries["load"], _WAIT_S)
        store.close()
        for broker in brokers:
            broker.stop()
        service.stop()
        service.close()
    settled: Counter[int] = Counter()
    for broker in brokers:
        settled.update(broker.settled)
    lost = count - len(_all(brokers))
    return lost, sum(times > 1 for times in settled.values())


def _all(brokers: list[Killed]) -> set[int]:
    return set().union(*(broker.came.copy() for broker in brokers))


def send_times(folder: Path, sends: int, rounds: int) -> dict[str, float]:
    """Median of the rounds' p50, in ms."""
    with short_folder() as sockets:
        # Not the settings of a service that is to be killed: those that the store beside it has.
        settings = folder / "settings.toml"
        settings.write_text("")
        service = ServiceProcess(folder / "served", sockets / "s", f"--config={settings}")
        service.start()
        embedded = DeltaMessageStore(folder / "alone")
        first = DeltaMessageStore(folder / "first")
        mirror = Mirror("mirror", DeltaMessageStore(folder / "second"), first)
        mirror.catch_up()
        stores: dict[str, BrokerStore] = {
            "in the process": embedded,
            "a member": RemoteMessageStore(service.path),
            "a chain of two": MessageStoreChain(first, [(mirror, Tolerance())]),
        }
        for store in stores.values():
            _wait(lambda done, store=store: store.create(Queue("q"), done))
        times_of: dict[str, list[float]] = {name: [] for name in stores}
        for _ in range(rounds):
            for name, store in stores.items():
                times_of[name].append(_p50(store, sends))
        for store in stores.values():
            store.close()
        service.stop()
        service.close()
    return {name: median(times) for name, times in times_of.items()}


def _p50(store: BrokerStore, sends: int) -> float:
    times = []
    for _ in range(sends):
        began_s = time.monotonic()
        message = store.message(MessageHeader(), _BODY)
        _wait(lambda done, message=message: store.enqueue(message, "q", done))
        times.append(1000 * (time.monotonic() - began_s))
    return median(times)


def _wait(call: Callable[[Any], None]) -> None:
    completion = Completion()
    call(completion.finish)
    completion.complete(_WAIT_S)


def main() -> int:
    """Run all three; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--sends", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    say = sys.stdout.write
    say(describe() + "\n")
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        folder = Path(name)
        for part in ("sends", "gaps", "killed"):
            (folder / part / "served").mkdir(parents=True)
        times = send_times(folder / "sends", options.sends, options.rounds)
        alone = times["in the process"]
        for store, time_ms in times.items():
            say(f"send p50, {store}: {time_ms:.2f} ms, {time_ms / alone:.2f} x\n")
        gaps = service_gaps(folder / "gaps", options.kills)
        say(f"service killed {len(gaps)} times: p50 {median(gaps):.0f} ms, worst {max(gaps):.0f}\n")
        lost, twice = members_killed(folder / "killed", options.kills, options.count)
        say(f"members killed {options.kills} times: {lost} lost, {twice} settled twice\n")
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main())
