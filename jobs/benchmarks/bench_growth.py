"""Whether a message costs the same however many wait, and on however many queues.

    python -m jobs.benchmarks.bench_growth [--waiting N,…] [--queues N,…] [--rounds N]

A root is filled with so many messages of 100 bytes (whole Arrow columns into its journal), and
`sparkstore serve` starts on it. Then, over AMQP by a client that costs next to nothing, ten
connections send messages of 1 KiB, and ten after each other take messages from the head of a queue.
With one queue all ten use it, with more each has one of its own. What waits on a queue lies
together in the journal: where messages of many queues lie mixed, one reads all of them. Two rows
are printed for each depth and each number of queues, with the broker's processor time a message and
its memory; exit code 1 if a row's processor time is over 1.15 times that of the least. Time by the
clock is printed too: on a shared machine it says little.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.benchmarks.amqp_brokers import Listening, sparkstore_serving
from jobs.benchmarks.amqp_load import message, receive_all, send_all, transfers
from jobs.benchmarks.bench_amqp import cpu_s, resident_mib
from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe, median
from sparkstore.tables.root import open_or_create_root

CONNECTIONS = 10
SENT, TAKEN = 20_000, 10_000
MOST = 1.15


class Row(NamedTuple):
    """One message: messages a second, µs of the broker's processor time."""

    per_second: float
    broker_us: float


def names(count: int) -> list[str]:
    """Of so many queues."""
    return [f"queue-{number}" for number in range(count)]


def fill(root: Path, waiting: int, queues: int) -> None:
    """So many messages on so many queues; in a process of its own, whose memory goes with it."""
    code = "import sys; from pathlib import Path; from jobs.benchmarks import bench_growth;"
    code += "bench_growth.write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))"
    words = [sys.executable, "-c", code, str(root), str(waiting), str(queues)]
    subprocess.run(words, check=True)


def write(root: Path, waiting: int, queues: int) -> None:
    """What `fill` does, here."""
    run = max(1, waiting // queues)
    BulkJournal(open_or_create_root(root), queues=names(queues), run=run).enqueue(waiting)


def measure(broker: Listening, queues: int) -> dict[str, Row]:
    """Send, then take from the head, by ten connections."""
    share, used = SENT // CONNECTIONS, [names(queues)[n % queues] for n in range(CONNECTIONS)]
    stream = transfers(share, message(1_024))
    for queue in used:  # a warm-up of each
        send_all(broker.port, queue, [stream[: len(stream) // share * 100]], 100)
        receive_all(broker.port, queue, 100)
    before = cpu_s(broker.pid)
    took_s = send_all(broker.port, used, [stream] * CONNECTIONS, share)
    between = cpu_s(broker.pid)
    sent = Row(SENT / took_s, (between - before) / SENT * 1e6)
    took_s = sum(receive_all(broker.port, queue, TAKEN // CONNECTIONS) for queue in used)
    taken = Row(TAKEN / took_s, (cpu_s(broker.pid) - between) / TAKEN * 1e6)
    return {"send": sent, "receive": taken}


def run(waiting: int, queues: int, rounds: int) -> tuple[dict[str, Row], float]:
    """Medians of the rounds, each on a copy of one root; the most MiB that were resident."""
    rows_of: dict[str, list[Row]] = defaultdict(list)
    most = 0.0
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        filled = Path(folder).resolve() / "filled"
        fill(filled, waiting, queues)
        for number in range(rounds):
            root = filled.with_name(f"round-{number}")
            shutil.copytree(filled, root)
            with sparkstore_serving([str(root)]) as broker:
                most = max(most, resident_mib(broker.pid))
                for phase, row in measure(broker, queues).items():
                    rows_of[phase].append(row)
            shutil.rmtree(root)
    medians = {
        phase: Row(*(median([row[column] for row in rows]) for column in range(2)))
        for phase, rows in rows_of.items()
    }
    return medians, most


def _numbers(text: str) -> list[int]:
    return [int(number.replace("_", "")) for number in text.split(",")]


def main() -> int:
    """Measure each, print, and judge by the processor time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--waiting", type=_numbers, default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--queues", type=_numbers, default=[1, 10, 100, 1_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, default=BUILD / "bench-growth.png")
    options = parser.parse_args()
    print(f"machine: {describe()}")
    cases = [(waiting, 1) for waiting in options.waiting]
    middle = sorted(options.waiting)[len(options.waiting) // 2]
    cases += [(middle, queues) for queues in options.queues if (middle, queues) not in cases]
    figures: dict[tuple[int, int], dict[str, Row]] = {}
    for waiting, queues in cases:
        figures[waiting, queues], mib = run(waiting, queues, options.rounds)
        for phase, row in figures[waiting, queues].items():
            line = f"{waiting:>10,} waiting on {queues:>5,} queues, {phase:7}"
            print(f"{line} {row.per_second:>8,.0f}/s {row.broker_us:6.1f} µs, {mib:,.0f} MiB")
    _draw(figures, options.picture)
    return _judge(figures)


def _judge(figures: dict[tuple[int, int], dict[str, Row]]) -> int:
    least = {
        phase: min(row[phase].broker_us for row in figures.values())
        for phase in ("send", "receive")
    }
    is_met = True
    for (waiting, queues), rows in figures.items():
        for phase, row in rows.items():
            share = row.broker_us / least[phase]
            if share > MOST:
                is_met = False
                print(f"MISSED: {phase} at {waiting:,} on {queues:,}: {share:.2f} x the least")
    return 0 if is_met else 1


def _draw(figures: dict[tuple[int, int], dict[str, Row]], picture: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (by_depth, by_queues) = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    deep = sorted(key for key in figures if key[1] == 1)
    middle = deep[len(deep) // 2][0]
    wide = sorted(key for key in figures if key[0] == middle)
    for axes, keys, values, name in (
        (by_depth, deep, [key[0] for key in deep], "messages waiting on one queue"),
        (by_queues, wide, [key[1] for key in wide], f"queues, {middle:,} messages waiting"),
    ):
        for phase in ("send", "receive"):
            axes.plot(values, _us(figures, keys, phase), marker="o", label=phase)
        axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylim(bottom=0)
        axes.legend()
    by_depth.set_ylabel("broker's processor time, µs a message")
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    print(f"drawn: {picture}")


def _us(
    figures: dict[tuple[int, int], dict[str, Row]], keys: Sequence[tuple[int, int]], phase: str
) -> list[float]:
    return [figures[key][phase].broker_us for key in keys]


if __name__ == "__main__":
    sys.exit(main())
