"""Whether one queue is read back as fast when other queues' messages lie between its own.

    python -m jobs.benchmarks.bench_interleaved [--waiting N] [--taken N] [--cases QUEUES:BYTES,…]

Messages are enqueued on so many queues in turn, as they come while no consumer does, until more of
them wait than `cache_bytes` keeps in memory. The broker starts on that root, so all content is on
disk. A client on proton's engine with a credit of 100 takes from one queue after the other, and
looks at the number in each body. Printed are messages a second, the broker's processor time of one,
and what is resident; exit code 1 if a case of many queues has less than half the rate of one queue
with messages of that size, or a message was another one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from jobs.benchmarks.amqp_brokers import sparkstore_serving
from jobs.benchmarks.bench_amqp import cpu_s, resident_mib
from jobs.benchmarks.machine import BUILD, describe
from jobs.benchmarks.raw_amqp import Receiver, encoded

CREDIT = 100
CASES = "1:1024,100:1024,1:200,2000:200"
LEAST_SHARE = 0.5
_IN_FLIGHT = 2_000


def write(root: Path, waiting: int, queues: int, size: int) -> None:
    """Enqueue so many messages, to one queue after the other; no body is like another."""
    store, room = DeltaMessageStore(root), threading.Semaphore(_IN_FLIGHT)
    for queue in range(queues):
        store.create(Queue(f"queue-{queue}"), lambda _error: None)
    for number in range(waiting):
        room.acquire()
        header, body = parse(_encoded(number, size), now_us=0)
        queue_name = f"queue-{number % queues}"
        store.enqueue(store.message(header, body), queue_name, lambda _error: room.release())
    store.close()


def _encoded(number: int, size: int) -> bytes:
    """A message like `encoded`, whose content cannot be compressed."""
    content = encoded(number, size)
    return content[: 8 - size] + os.urandom(size - 8)


def measure(waiting: int, taken: int, queues: int, size: int) -> float:
    """Fill a root, start on it, and take from queue after queue; messages a second."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        root = Path(folder).resolve() / "root"
        code = "import sys; from pathlib import Path; from jobs.benchmarks import"
        code += " bench_interleaved as b; b.write(Path(sys.argv[1]), *map(int, sys.argv[2:]))"
        words = [sys.executable, "-c", code, str(root), str(waiting), str(queues), str(size)]
        subprocess.run(words, check=True)
        with sparkstore_serving([str(root)]) as broker:
            before_s, took_s, left = cpu_s(broker.pid), 0.0, taken
            for queue in range(queues):
                numbers = range(queue, waiting, queues)[:left]
                receiver = Receiver(f"amqp://127.0.0.1:{broker.port}", f"queue-{queue}", CREDIT)
                took_s += receiver.take(len(numbers))
                receiver.close()
                if receiver.numbers != [*numbers]:
                    sys.exit(f"queue-{queue} brought other messages than were sent to it")
                left -= len(numbers)
                if not left:
                    break
            cpu_us = (cpu_s(broker.pid) - before_s) / taken * 1e6
            row = f"{waiting:,} x {size:,} bytes on {queues:>5,} queues: {taken / took_s:>8,.0f}/s"
            print(f"{row} {cpu_us:8,.1f} µs, {resident_mib(broker.pid):,.0f} MiB", flush=True)
    return taken / took_s


def main() -> int:
    """Measure each case, and judge the many queues by the one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--taken", type=int, default=20_000)
    parser.add_argument("--cases", default=CASES)
    options = parser.parse_args()
    print(f"machine: {describe()}")
    alone: dict[int, float] = {}
    is_met = True
    for case in options.cases.split(","):
        queues, size = map(int, case.split(":"))
        rate = measure(options.waiting, options.taken, queues, size)
        share = rate / alone.setdefault(size, rate)
        if share < LEAST_SHARE:
            is_met = False
            print(f"MISSED: {share:.2f} of the rate of one queue, {LEAST_SHARE} is wanted")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
