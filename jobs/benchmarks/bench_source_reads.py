"""The Spark data source in figures: a read and a stream beside a plain scan of Parquet files.

`python -m jobs.benchmarks.bench_source_reads [MESSAGES]`: most of them are in history, as a
compaction wrote it, and the rest in the journal. Each figure is the median of three, on `local[2]`.
The lag is from the time of a record to the end of the batch that has it, for the oldest record of
each batch, while a store takes so many messages a second and a trigger fires each second.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from jobs.benchmarks import machine
from jobs.benchmarks.bulk_journal import BulkJournal
from sparkstore.compaction import compact
from sparkstore.session import local_session
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.stores.stores import done

ROUNDS = 3
TAIL = 5
"""One message of so many is in the journal."""
NARROW = "position long, queue string, at timestamp"
RATE, LIVE_S, WARM_S = 5_000, 30, 12
"""Messages a second, for so long; what the first batches have is left out."""
WIDE = f"{NARROW}, subject string, properties map<string,string>, body binary"


def filled(spark: SparkSession, folder: Path, count: int) -> Root:
    """Make a root, most of it compacted."""
    root = open_or_create_root(folder / "root")
    journal = BulkJournal(root)
    journal.enqueue(count - count // TAIL)
    compact.run(spark, root)
    journal.trim()
    journal.enqueue(count // TAIL)
    return root


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def scanned(frame: DataFrame) -> Callable[[], None]:
    """Compute every row of a frame and keep none."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def streamed(spark: SparkSession, root: Root, columns: str, folder: Path) -> float:
    """Seconds of the one batch of a stream, which begins after the query has started."""
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    source = spark.readStream.format("sparkstore").schema(columns)
    events = source.options(path=str(root.path), kind="enqueued").load()
    sink = events.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(batch["durationMs"]["triggerExecution"] for batch in query.recentProgress) / 1000


def lags(spark: SparkSession, folder: Path) -> list[float]:
    """Seconds of lag, batch by batch, once the first batches have warmed everything up."""
    store = DeltaMessageStore(folder / "live")
    done(store.create, Queue("q"))
    source = spark.readStream.format("sparkstore").schema(NARROW)
    events = source.options(path=f"{folder}/live", kind="enqueued").load()
    sink = events.writeStream.format("noop").option("checkpointLocation", f"{folder}/live-c")
    query = sink.trigger(processingTime="1 second").start()
    began, sent = time.time(), 0
    while time.time() < began + LIVE_S:
        due = int((time.time() - began) * RATE) - sent
        for _ in range(due):
            store.enqueue(store.message(MessageHeader(), b"x" * 200), "q", lambda _error: None)
        sent += due
        time.sleep(0.01)
    query.stop()
    store.close()
    lags_s = []
    for batch in query.recentProgress:
        ended = datetime.fromisoformat(batch["timestamp"]).timestamp()
        ended += batch["durationMs"]["triggerExecution"] / 1000
        if batch["numInputRows"] and ended > began + WARM_S:
            oldest = json.loads(batch["sources"][0]["startOffset"])["at"]
            lags_s.append(ended - oldest / 1_000_000)
    print(f"{'lag':13}{'sent':10}{sent / LIVE_S:>12,.0f} messages/s")
    return lags_s


def main(count: int) -> None:
    """Print rows a second of each road, and their share of a plain scan."""
    spark = local_session("bench", heap="2g")
    spark.sparkContext.setLogLevel("ERROR")
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = filled(spark, Path(folder), count)
        plain = f"{folder}/plain"
        tables = [DeltaTable(str(table)).file_uris() for table in (root.journal, root.history)]
        files = [file for several in tables for file in several]
        spark.read.parquet(*files).where("kind = 'enqueued'").write.parquet(plain)
        for name, columns in (("narrow", NARROW), ("with content", WIDE)):
            in_view = columns.replace(" at ", " enqueued_at ")
            view = spark.read.format("sparkstore").option("path", str(root.path)).schema(in_view)
            roads: dict[str, Callable[[], float]] = {
                "parquet": lambda c=columns: seconds(scanned(spark.read.schema(c).parquet(plain))),
                "read": lambda v=view: seconds(scanned(v.load())),
                "stream": lambda c=columns: streamed(spark, root, c, Path(folder)),
            }
            for road, work in roads.items():
                work()
                took_s = statistics.median(work() for _ in range(ROUNDS))
                print(f"{name:13}{road:10}{count / took_s:>12,.0f} rows/s {took_s:>8.2f} s")
        found_lags = lags(spark, Path(folder))
        middle, worst = statistics.median(found_lags), max(found_lags)
        print(f"{'lag':13}{'median':10}{middle:>12.2f} s; worst {worst:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
