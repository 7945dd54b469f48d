"""Processor time that one message costs the loop's thread, and what a change makes of it.

    python -m jobs.benchmarks.bench_loop [--against COMMIT] [--rounds N] [--count N] [--ids]

The loop of `trace_message` is driven, with the store's own threads beside it; what is measured is
the processor time of this thread alone (`time.thread_time`), which other work on the machine hardly
changes. With `--against` this checkout and that commit take turns, each round a process of its own.
Of each process the least of several passes counts, of the rounds the median. All messages are
alike, or each has an id of its own (`--ids`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.benchmarks.amqp_brokers import checkout
from jobs.benchmarks.machine import describe, median
from jobs.benchmarks.trace_message import Server, receive, send
from sparkstore.log.tuning import tune_process

_RANGE = 60
_PASSES = 5
_HERE = Path(__file__).resolve().parents[2]


class Timing:
    """The processor time of this thread while it is entered.

    Attributes:
        took_s: All of it, in seconds.
    """

    def __init__(self) -> None:
        self.took_s = 0.0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure while the block runs."""
        before = time.thread_time()
        yield
        self.took_s += time.thread_time() - before


def one_process(count: int, *, have_ids: bool) -> dict[str, float]:
    """Microseconds a message, the least of several passes after one to warm up."""
    passes_of: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "root")
        tune_process()
        try:
            for _ in range(1 + _PASSES):
                times = {name: Timing() for name in ("send", "deliver", "accept")}
                send(server, count, times["send"], have_ids=have_ids)
                receive(server, count, _RANGE, times["deliver"], times["accept"])
                for name, timing in times.items():
                    passes_of[name].append(timing.took_s / count * 1e6)
        finally:
            server.close()
    least = {name: min(passes[1:]) for name, passes in passes_of.items()}
    return {**least, "receive and accept": least["deliver"] + least["accept"]}


def _measured(where: Path, count: int, *, have_ids: bool) -> dict[str, float]:
    """The same in a process whose broker is that of a checkout."""
    words = [sys.executable, "-m", "jobs.benchmarks.bench_loop", "--worker", "--count", str(count)]
    words += ["--ids"] if have_ids else []
    environment = {**os.environ, "PYTHONPATH": f"{where}{os.pathsep}{_HERE}"}
    run = subprocess.run(
        words, check=True, cwd=where, env=environment, stdout=subprocess.PIPE, text=True
    )
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def main() -> None:
    """Print a line for each phase, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--against", help="a commit that takes turns with this checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--ids", action="store_true", help="messages with ids of their own")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(one_process(asked.count, have_ids=asked.ids)))
        return
    places = {"now": _HERE}
    if asked.against:
        places["before"] = checkout(asked.against)
    rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(asked.rounds):
        for name, where in places.items():
            rounds[name].append(_measured(where, asked.count, have_ids=asked.ids))
    medians = {
        name: {phase: median([row[phase] for row in rows]) for phase in rows[0]}
        for name, rows in rounds.items()
    }
    if asked.json:
        print(json.dumps(medians))
        return
    print(describe())
    for phase, took_us in medians["now"].items():
        line = f"{phase:20} {took_us:6.2f} µs"
        if asked.against:
            before_us = medians["before"][phase]
            line += f", before {before_us:6.2f} µs: {took_us / before_us:.3f} x"
        print(line)


if __name__ == "__main__":
    main()
