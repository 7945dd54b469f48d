"""Several brokers on one set of queues beside one broker alone: `make bench-members`.

    python -m jobs.benchmarks.bench_members [--count N] [--rounds N] [--members N …] [--json]

    one            a broker on its root, with all the consumers
    N members      a service without AMQP, and so many brokers on it that share the consumers

N messages of 1 KiB are put by one client, then taken and accepted by 32 consumers. Rounds are
interleaved; figures are medians. Printed are the rates, the share of each member, the processor
time of all broker processes a message, and of the busiest one: with a core for each process that
one is the limit, so 1 / its time is what more cores would reach. A message that was lost or came to
two consumers is an error.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from jobs.benchmarks.machine import BUILD, describe, median
from tests.support.stores.services import ServiceProcess, short_folder
from tests.support.system.processes import BrokerProcess

CONSUMERS = 32
_TICKS = os.sysconf("SC_CLK_TCK")
_LISTEN = "--listen=127.0.0.1:0"


class Serving(NamedTuple):
    """Brokers that clients can reach, and all processes behind them."""

    urls: list[str]
    pids: list[int]


class Round(NamedTuple):
    """What one round came to; times of processors in µs a message."""

    sent_per_second: float
    taken_per_second: float
    all_us: float
    busiest_us: float
    shares: list[float]


class Sender(MessagingHandler):
    """Puts messages as fast as it has credit, and waits for all to be accepted."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__()
        self._url, self._count = url, count
        self._sent = self._accepted = 0

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._connection = event.container.connect(self._url, reconnect=False)
        event.container.create_sender(self._connection, "load")

    def on_sendable(self, event: Any) -> None:
        """Send."""
        while event.sender.credit and self._sent < self._count:
            event.sender.send(Message(id=self._sent, body=b"x" * 1024, durable=True))
            self._sent += 1

    def on_accepted(self, _event: Any) -> None:
        """The last one ends it."""
        self._accepted += 1
        if self._accepted == self._count:
            self._connection.close()


class Consumers(MessagingHandler):
    """Some consumers of one broker, which take until all messages are taken by anybody."""

    def __init__(self, url: str, consumers: int, count: int, taken: Any) -> None:
        super().__init__(prefetch=100)
        self._url, self._consumers, self._count, self._taken = url, consumers, count, taken
        self.ids: list[int] = []

    def on_start(self, event: Any) -> None:
        """Connect, each by itself."""
        connect = event.container.connect
        self._there = [connect(self._url, reconnect=False) for _ in range(self._consumers)]
        for number, connection in enumerate(self._there):  # one name would be one link
            event.container.create_receiver(connection, "load", name=f"consumer {number}")
        event.container.schedule(0.1, self)

    def on_message(self, event: Any) -> None:
        """Proton accepts it."""
        self.ids.append(event.message.id)
        with self._taken.get_lock():
            self._taken.value += 1

    def on_timer_task(self, event: Any) -> None:
        """Leave when nothing is left."""
        if self._taken.value >= self._count:
            for connection in self._there:
                connection.close()
        else:
            event.container.schedule(0.1, self)


def _consume(url: str, consumers: int, count: int, taken: Any, results: Any) -> None:
    handler = Consumers(url, consumers, count, taken)
    Container(handler).run()
    results.put(handler.ids)


@contextmanager
def serving(members: int) -> Iterator[Serving]:
    """One broker alone (0), or a service and so many members."""
    with (
        tempfile.TemporaryDirectory(dir=BUILD) as folder,
        short_folder() as short,
        ExitStack() as end,
    ):
        root = Path(folder) / "root"
        if not members:
            broker = BrokerProcess(str(root), _LISTEN)
            end.callback(broker.terminate)
            yield Serving([broker.url], [broker.pid])
            return
        service = ServiceProcess(root, short / "s", settings="")  # as one alone has them
        service.start()
        end.callback(service.close)
        end.callback(service.stop)
        brokers = []
        for number in range(members):
            where = (f"--store=unix:{short / 's'}", f"--member=m{number}", _LISTEN)
            brokers.append(BrokerProcess(*where))
            end.callback(brokers[-1].terminate)
        assert service.process is not None
        pids = [service.process.pid, *(broker.pid for broker in brokers)]
        yield Serving([broker.url for broker in brokers], pids)


def run_round(members: int, count: int) -> Round:
    """Put and take; raises AssertionError if a message is lost or taken twice."""
    with serving(members) as brokers:
        began_s = time.monotonic()
        Container(Sender(brokers.urls[0], count)).run()
        sent_s = time.monotonic() - began_s
        before = [_processor_s(pid) for pid in brokers.pids]
        taken, results = multiprocessing.Value("i", 0), multiprocessing.Queue()
        of_broker = CONSUMERS // len(brokers.urls)
        clients = [
            multiprocessing.Process(target=_consume, args=(url, of_broker, count, taken, results))
            for url in brokers.urls
        ]
        began_s = time.monotonic()
        for client in clients:
            client.start()
        ids_of = [results.get() for _ in clients]
        taken_s = time.monotonic() - began_s
        spent = [_processor_s(pid) - b for pid, b in zip(brokers.pids, before, strict=True)]
        for client in clients:
            client.join()
    counts = Counter(number for ids in ids_of for number in ids)
    lost = count - len(counts)
    twice = sum(times > 1 for times in counts.values())
    assert (lost, twice) == (0, 0), f"{lost} messages lost, {twice} taken twice"
    per_message = [1e6 * seconds / count for seconds in spent]
    shares = [len(ids) / count for ids in ids_of]
    return Round(count / sent_s, count / taken_s, sum(per_message), max(per_message), shares)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def main() -> int:
    """Run the rounds; print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = [0, *options.members]
    rounds: dict[int, list[Round]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            rounds[kind].append(run_round(kind, options.count))
    rows = [_row(kind, rounds[kind]) for kind in kinds]
    if options.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return 0
    sys.stdout.write(describe() + "\n")
    sys.stdout.write(f"{options.count} messages of 1 KiB, {CONSUMERS} consumers, medians\n")
    for row in rows:
        sys.stdout.write("  ".join(f"{name} {value}" for name, value in row.items()) + "\n")
    return 0


def _row(kind: int, rounds: list[Round]) -> dict[str, Any]:
    return {
        "brokers": f"{kind} members" if kind else "one alone",
        "sent/s": round(median([one.sent_per_second for one in rounds])),
        "taken/s": round(median([one.taken_per_second for one in rounds])),
        "all µs": round(median([one.all_us for one in rounds])),
        "busiest µs": round(median([one.busiest_us for one in rounds])),
        "least share": round(min(min(one.shares) for one in rounds), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
