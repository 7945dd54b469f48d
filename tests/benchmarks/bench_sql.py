"""How fast SQL and compaction are: python tests/benchmarks/bench_sql.py [--waiting N] [--tail N].

Three figures, as a table on standard error and JSON on standard output:

    compact       records a second, moving and folding `--waiting` new messages
    queues        seconds for `SELECT * FROM queues` over them and `--tail` records after P
    backlog       seconds of the same fold (one dequeue for each of `--tail` messages) on a backlog
                  of `--waiting` / 10 and of `--waiting`: oldest first, and at random
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sparkstore import compact, views
from sparkstore.compact_plan import Limits
from sparkstore.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.root import Root, open_or_create_root
from sparkstore.rows import to_table
from sparkstore.session import local_session

QUEUES = [f"queue-{number}" for number in range(10)]
BODY = bytes(100)
HEADER = MessageHeader("raw", None, body_bytes=len(BODY))
COMMIT_RECORDS = 100_000


class Journal:
    """A journal that grows, one Delta commit for many records."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.last = 0
        self.next_id = 1
        self.append([opened(1, "bench"), ids_reserved(1, 1 << 40)])
        self.append([queue_created(1, queue, "{}") for queue in QUEUES])

    def append(self, records: Iterable[Record]) -> None:
        """Commit these records."""
        found = iter(records)
        while part := list(islice(found, COMMIT_RECORDS)):
            table = to_table(
                part, first_position=self.last + 1, epoch=1, segment=self.last // 1_000_000
            )
            write_deltalake(str(self.root.journal), table, mode="append")
            self.last += len(part)

    def enqueue(self, count: int) -> None:
        """So many new messages."""
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        self.append(message_enqueued(1, _queue(number), number, HEADER, BODY) for number in ids)

    def dequeue(self, ids: Iterable[int]) -> None:
        """Take these messages."""
        self.append(message_dequeued(1, _queue(number), number, None) for number in ids)


def _queue(message_id: int) -> str:
    return QUEUES[message_id % len(QUEUES)]


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def backlog(
    spark: SparkSession, folder: Path, waiting: int, taken: int, step: int
) -> dict[str, float]:
    """Compact `waiting` messages, then time folds that take `taken` of them."""
    journal = Journal(open_or_create_root(folder))
    journal.enqueue(waiting)
    limits = Limits(step)
    seconds = {"fill": timed(lambda: compact.run(spark, journal.root, limits=limits))}
    journal.dequeue(range(1, taken + 1))
    seconds["fifo"] = timed(lambda: compact.run(spark, journal.root, limits=limits))
    rest = random.Random(7).sample(range(taken + 1, waiting + 1), taken)
    journal.dequeue(rest)
    seconds["random"] = timed(lambda: compact.run(spark, journal.root, limits=limits))
    return seconds


def queues_seconds(spark: SparkSession, root: Root, tail: int) -> float:
    """Median of three queries over what is there and `tail` new records."""
    journal = Journal.__new__(Journal)
    report = compact.run(spark, root)
    journal.root, journal.last, journal.next_id = root, report.position_after, 1 << 30
    journal.enqueue(tail)
    views.register(spark, root)
    return statistics.median(
        timed(lambda: spark.sql("SELECT * FROM queues").collect()) for _ in range(3)
    )


def main() -> None:
    """Run all three and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--tail", type=int, default=100_000)
    arguments = parser.parse_args()
    waiting, tail = arguments.waiting, arguments.tail
    spark = local_session("bench", heap="3g")
    with TemporaryDirectory() as folder:
        step = max(waiting // 10, 2 * tail)
        warm = backlog(spark, Path(folder) / "warm", waiting // 10, tail // 10, step)
        small = backlog(spark, Path(folder) / "small", waiting // 10, tail // 2, step)
        large = backlog(spark, Path(folder) / "large", waiting, tail // 2, step)
        root = open_or_create_root(Path(folder) / "large")
        found: dict[str, Any] = {
            "waiting": waiting,
            "tail": tail,
            "compact_rows_per_s": round(waiting / large["fill"]),
            "queues_s": round(queues_seconds(spark, root, tail), 2),
            "fifo_ratio": round(large["fifo"] / small["fifo"], 2),
            "random_ratio": round(large["random"] / small["random"], 2),
            "seconds": {"warm": warm, "small": small, "large": large},
        }
    for name, value in found.items():
        sys.stderr.write(f"{name:20} {value}\n")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
