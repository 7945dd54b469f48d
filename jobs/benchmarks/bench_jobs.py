"""What the Spark jobs cost at size: python -m jobs.benchmarks.bench_jobs [--records N].

Every figure on one machine, `local[2]`, a heap of 2 GiB, the JVM warmed by a small root first:

    fold            records a second, at a tenth of `--records` and at all of them
    fold on top     the same fold of new records on an empty store and on the full one, seconds
    queues          `SELECT * FROM queues` over the full store and a tail, beside a plain scan of
                    the same columns of the same Parquet files
    by property     a count by property over the messages that wait, beside a plain scan
    replicate       records a second in steady state, and the lag afterwards

A table on standard error, JSON on standard output, cost against size as a picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import sparkstore
from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe
from sparkstore.compaction import compact
from sparkstore.replication import replicate
from sparkstore.session import local_session
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.views import views
from sparkstore.views.view_relations import LOCAL_ROWS

WARM = 20_000
REPEATS = 3


class Bench:
    """The session, and where roots are made."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder
        self.found: dict[str, Any] = {}

    def root(self, name: str) -> Root:
        """A new root."""
        return open_or_create_root(self._folder / name)

    def fold(self, journal: BulkJournal) -> float:
        """Seconds of a compaction; then the journal is trimmed, as the store does."""
        seconds = timed(lambda: compact.run(self.spark, journal.root))
        journal.trim()
        return seconds

    def say(self, name: str, value: object) -> None:
        """Keep a figure, and show it at once."""
        self.found[name] = value
        sys.stderr.write(f"{name:34} {value}\n")
        sys.stderr.flush()

    def seconds(self, query: str) -> float:
        """Median seconds of a query, after one run that nobody counts."""
        self.spark.sql(query).collect()
        return statistics.median(
            timed(lambda: self.spark.sql(query).collect()) for _ in range(REPEATS)
        )


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def warm(bench: Bench) -> None:
    """Make the JVM compile what is measured."""
    journal = BulkJournal(bench.root("warm"))
    for _ in range(2):
        journal.enqueue(WARM)
        bench.fold(journal)
        replicate.run(bench.spark, journal.root.path, bench.root("warm").path.parent / "warm-copy")
    views.register(bench.spark, journal.root)
    bench.seconds("SELECT * FROM queues")


def folds(bench: Bench, records: int) -> BulkJournal:
    """Rows a second at two sizes; then a small fold on the large store and on an empty one."""
    small = BulkJournal(bench.root("small"))
    small.enqueue(records // 10)
    rate_small = records / 10 / bench.fold(small)
    large = BulkJournal(bench.root("large"))
    large.enqueue(records)
    rate_large = records / bench.fold(large)
    bench.say(f"fold {records // 10} records, rows/s", round(rate_small))
    bench.say(f"fold {records} records, rows/s", round(rate_large))
    bench.say("rate at all / at a tenth (>= 0.75)", round(rate_large / rate_small, 2))
    new = max(records // 100, 1000)
    empty = BulkJournal(bench.root("empty"))
    empty.enqueue(new)
    on_empty = bench.fold(empty)
    large.enqueue(new // 2)
    large.dequeue(range(1, new // 2 + 1))
    on_full = bench.fold(large)
    bench.say(f"fold {new} on an empty store, s", round(on_empty, 2))
    bench.say(f"fold {new} on {records}, s", round(on_full, 2))
    bench.say("on full / on empty (<= 3)", round(on_full / on_empty, 2))
    return large


def queries(bench: Bench, journal: BulkJournal, tail: int) -> None:
    """Views over a backlog and a tail, beside plain scans of the same columns."""
    folded = journal.last
    journal.enqueue(tail // 2)
    first = journal.next_id - tail
    journal.dequeue(np.arange(first - tail // 2, first))
    _plain(bench.spark, journal.root, "state", "part=entry")
    _plain(bench.spark, journal.root, "journal")
    plain = (
        "SELECT queue, acquired_by, count(*), sum(message_bytes), min(at), max(message_id) FROM ("
        "SELECT queue, acquired_by, message_bytes, at, message_id FROM plain_state UNION ALL"
        " SELECT queue, holder, body_bytes, at, message_id FROM plain_journal"
        f" WHERE position > {folded}) GROUP BY queue, acquired_by"
    )
    _beside(bench, journal.root, f"queues, tail {tail}", "SELECT * FROM queues", plain)


def _plain(spark: SparkSession, root: Root, table: str, part: str = "") -> None:
    """A table's files without Delta, and only those that its newest version names."""
    files = [uri for uri in DeltaTable(str(root.table(table))).file_uris() if part in uri]
    spark.read.parquet(*files).createOrReplaceTempView(f"plain_{table}")


def by_property(bench: Bench, waiting: int) -> None:
    """A count by property over messages that wait."""
    journal = BulkJournal(bench.root("waiting"))
    journal.enqueue(waiting)
    bench.fold(journal)
    _plain(bench.spark, journal.root, "history")
    select = "SELECT properties['region'], count(*)"
    name, query = f"count by property of {waiting}", f"{select} FROM queue_messages GROUP BY 1"
    plain = f"{select}, max(message_id) FROM plain_history GROUP BY 1"
    scan = _beside(bench, journal.root, name, query, plain)
    seconds = statistics.median(
        timed(lambda: sparkstore.query(journal.root.path, query)) for _ in range(REPEATS)
    )
    bench.say(f"{name}, sparkstore.query, ratio (<= 3)", round(seconds / scan, 2))


def _beside(bench: Bench, root: Root, name: str, query: str, plain: str) -> float:
    """Time a query in a session both ways; return the seconds of a plain scan."""
    scan = bench.seconds(plain)
    bench.say(f"{name}, plain scan, s", round(scan, 2))
    for local_rows, how in ((LOCAL_ROWS, ""), (0, ", by Spark")):
        views.register(bench.spark, root, ("queues", "queue_messages"), local_rows=local_rows)
        seconds = bench.seconds(query)
        bench.say(f"{name}{how}, s", round(seconds, 2))
        bench.say(f"{name}{how}, ratio (<= 3)", round(seconds / scan, 2))
    return scan


def replication(bench: Bench, records: int) -> None:
    """Runs of the job on a replica that is there already."""
    journal = BulkJournal(bench.root("primary"))
    journal.enqueue(1000)
    copy = journal.root.path.parent / "copy"
    replicate.run(bench.spark, journal.root.path, copy)
    rates, lags = [], []
    for _ in range(REPEATS):
        journal.enqueue(records)
        began = time.perf_counter()
        report = replicate.run(bench.spark, journal.root.path, copy)
        rates.append(records / (time.perf_counter() - began))
        lags.append(report.lag_records)
    bench.say(f"replicate {records} a run, rows/s (>= 50000)", round(statistics.median(rates)))
    bench.say("lag afterwards, records (0)", max(lags))


def plot(bench: Bench, sizes: dict[int, float], picture: Path) -> None:
    """Seconds of a fold against records, as PNG."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.loglog(list(sizes), list(sizes.values()), marker="o")
    axes.set_xlabel("records folded")
    axes.set_ylabel("seconds")
    axes.set_title("Compaction: cost against size")
    axes.grid(visible=True, which="both", alpha=0.3)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    bench.say("picture", str(picture))


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = local_session("bench-jobs", heap="2g")
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--plot", type=Path, default=BUILD / "bench-jobs.png")
    arguments = parser.parse_args()
    records = arguments.records
    sys.stderr.write(describe() + "\n")
    with TemporaryDirectory(dir=BUILD) as folder, _session() as spark:
        bench = Bench(spark, Path(folder))
        warm(bench)
        sizes = {}
        for size in (records // 100, records // 30):
            journal = BulkJournal(bench.root(f"size-{size}"))
            journal.enqueue(size)
            sizes[size] = bench.fold(journal)
        large = folds(bench, records)
        for size in (records // 10, records):
            sizes[size] = size / bench.found[f"fold {size} records, rows/s"]
        queries(bench, large, records // 10)
        by_property(bench, records // 10)
        replication(bench, records // 20)
        plot(bench, sizes, arguments.plot)
    sys.stdout.write(json.dumps(bench.found) + "\n")


if __name__ == "__main__":
    main()
