"""What a job costs the store beside it: python -m jobs.benchmarks.bench_beside [--seconds N].

Some callers enqueue and dequeue, each waiting for every answer, at a set rate. p50 and p99 of an
answer: idle; while `sparkstore compact` runs again and again at nice 19; and at nice 0. The store
is then opened again, and every message that was acknowledged and not taken must be there.

That is also the attack on the lost commit (FACTS: a Spark commit can overwrite one of delta-rs on
a local file system): Spark commits to history and state all the time while the store commits to
the journal five times a second and trims it, and the count at the end would show one that is gone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from jobs.benchmarks.machine import BUILD, describe, percentile
from sparkstore.config import StoreConfig
from sparkstore.log.tuning import tune_process

CALLERS = 4
RATE = 250
_HEADER = MessageHeader(subject="bench")
_BODY = bytes(1024)


class Load:
    """Callers that run until they are told to stop; what was answered, and in how many ms."""

    def __init__(self, store: DeltaMessageStore) -> None:
        self._store = store
        self._took: list[float] = []
        self.waiting: set[int] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _call(self) -> None:
        while not self._stop.wait(CALLERS / RATE):
            message = self._store.message(_HEADER, _BODY)
            self._timed(self._store.enqueue, message, "bench")
            self.waiting.add(message.message_id)
            if message.message_id % 2:
                self._timed(self._store.dequeue, message.message_id, "bench", "me")
                self.waiting.discard(message.message_id)

    def _timed(self, call: object, *arguments: object) -> None:
        done = Completion()
        began = time.perf_counter()
        call(*arguments, done.finish)  # type: ignore[operator]
        done.complete(60)
        self._took.append((time.perf_counter() - began) * 1e3)

    def measured(self, seconds: float) -> tuple[float, float]:
        """p50 and p99 in ms of the answers of the next seconds."""
        first = len(self._took)
        time.sleep(seconds)
        took = self._took[first:]
        return percentile(took, 0.5), percentile(took, 0.99)

    def end(self) -> int:
        """Stop; how many answers there were."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return len(self._took)


@contextmanager
def _compacting(root: Path, nice: int) -> Iterator[list[int]]:
    """Compact again and again in another process; exit codes of the runs that ended."""
    ended: list[int] = []
    stop = threading.Event()

    def loop() -> None:
        words = [sys.executable, "-m", "sparkstore", "compact", "--nice", str(nice), str(root)]
        while not stop.is_set():
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            ended.append(subprocess.run(words, check=False, **quiet).returncode)  # type: ignore[call-overload]

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Run it and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    sys.stderr.write(describe() + "\n")
    tune_process()
    figures: dict[str, object] = {}
    with TemporaryDirectory(dir=BUILD) as folder:
        root = Path(folder) / "root"
        config = StoreConfig(segment_commits=20, reader_grace_s=5.0)
        store = DeltaMessageStore(root, config)
        done = Completion()
        store.create(Queue("bench"), done.finish)
        done.complete(60)
        load = Load(store)
        load.measured(5)
        idle = load.measured(arguments.seconds)
        figures["idle p50, p99 ms"] = [round(value, 2) for value in idle]
        for nice in (19, 0):
            with _compacting(root, nice) as ended:
                beside = load.measured(arguments.seconds)
            name = f"beside compact, nice {nice}"
            figures[f"{name}: p50, p99 ms"] = [round(value, 2) for value in beside]
            figures[f"{name}: p99 / idle p99 (<= 3)"] = round(beside[1] / idle[1], 2)
            figures[f"{name}: runs, failed"] = [len(ended), sum(code != 0 for code in ended)]
        figures["answers"] = load.end()
        store.close()
        again = DeltaMessageStore(root, config)
        standing = set(again.recover().entries["bench"])
        figures["acknowledged and missing (0)"] = len(load.waiting - standing)
        figures["taken and there again (0)"] = len(standing - load.waiting)
        again.close()
    for name, value in figures.items():
        sys.stderr.write(f"{name:46} {value}\n")
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
