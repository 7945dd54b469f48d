"""A `compact` that is killed in the midst of a commit, beside a store at work, makes no view wrong.

The kill comes when a file appears: the first data file of a commit, which no version names yet, or
the version that names them. Beside the job a store enqueues and dequeues all the time; it rests
while a JVM starts. What its clients were told is the ledger, and the views are held against it
after each kill: those with rows by Spark, the others by DuckDB, at the end all by Spark. Spark's
are those that were registered before the first kill: a view stays right, whatever is compacted.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.compaction import compact
from sparkstore.config import StoreConfig
from sparkstore.embedded.query import query
from sparkstore.tables.root import Root, open_root
from sparkstore.views import views
from tests.support.spark.killing import started_job
from tests.support.spark.tables import stored
from tests.support.stores.stores import done

pytestmark = [pytest.mark.slow]

KILLS = int(os.environ.get("SPARKSTORE_COMMIT_KILLS", "4"))
"""Fewer in CI, 50 by `make soak`."""
QUEUES = [f"q{number}" for number in range(5)]
PLACES = (
    "history, first data file",
    "history, committed",
    "state, first data file",
    "state, committed",
)
CONFIG = StoreConfig(commit_interval_ms=100, segment_commits=20, reader_grace_s=3600.0)
EMPTY = ("bindings", "links", "deliveries", "members", "transactions")
"""Views of what this store never has."""
FRESH = 60
"""Messages that are new to each job."""
PACE_S = 0.01
"""Between two messages: all of them are read."""


class LiveStore:
    """A store at work on a thread, and the ledger of what it was told is done."""

    def __init__(self, path: Path) -> None:
        self._store = DeltaMessageStore(path, CONFIG)
        self._dice = Random(path.name)
        for queue in QUEUES:
            done(self._store.create, Queue(queue))
        self.waiting: dict[int, tuple[str, bytes]] = {}
        self.events: Counter[int] = Counter()
        self._may_work, self._paused = threading.Event(), threading.Event()
        self._sent = threading.Semaphore(0)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._over.wait(PACE_S):
                if not self._may_work.is_set():
                    self._paused.set()
                    self._may_work.wait()
                    continue
                self._turn()
        except BaseException as reason:  # noqa: BLE001 - the test is told
            self._failure = reason
            self._paused.set()

    def _turn(self) -> None:
        queue, body = self._dice.choice(QUEUES), self._dice.randbytes(100)
        message = self._store.message(MessageHeader(), body)
        done(self._store.enqueue, message, queue)
        self.waiting[message.message_id] = (queue, body)
        self.events[message.message_id] += 1
        self._sent.release()
        if len(self.waiting) > 60:
            oldest = next(iter(self.waiting))
            done(self._store.dequeue, oldest, self.waiting[oldest][0], None)
            del self.waiting[oldest]
            self.events[oldest] += 1

    def at_rest(self) -> None:
        """Pause the work, and have all of it where queries see it."""
        self._paused.clear()
        self._may_work.clear()
        assert self._paused.wait(60), self._failure
        assert self._failure is None, self._failure
        done(self._store.flush)

    def go_on(self) -> None:
        """Work again; return when so many messages were sent that a job has something to do."""
        while self._sent.acquire(blocking=False):
            pass
        self._may_work.set()
        for _ in range(FRESH):
            assert self._sent.acquire(timeout=60), self._failure

    def close(self) -> None:
        """End the work, and close the store."""
        self._over.set()
        self._may_work.set()
        self._thread.join()
        self._store.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveStore]:
    store = LiveStore(tmp_path / "root")
    yield store
    store.close()


def _files(table: Path, pattern: str) -> set[str]:
    return {str(path) for path in table.glob(pattern)}


def _appears(root: Root, place: str) -> Callable[[], bool]:
    """True as soon as a file of this place is there that is not there now."""
    table, moment = place.split(", ")
    folder = root.table(table)
    patterns: tuple[str, ...] = ("_delta_log/*.json",)
    if moment != "committed":
        patterns = ("segment=*/*.parquet", "part=*/*/*.parquet")
    before = [_files(folder, pattern) for pattern in patterns]
    return lambda: any(
        _files(folder, pattern) - known for pattern, known in zip(patterns, before, strict=True)
    )


def _assert_the_views_say_the_ledger(spark: SparkSession, live: LiveStore) -> None:
    rows = spark.sql("SELECT message_id, queue, body FROM queue_messages").collect()
    found = {row.message_id: (row.queue, bytes(row.body)) for row in rows}
    assert len(rows) == len(found)
    assert found == live.waiting
    depths = Counter(queue for queue, _ in live.waiting.values())
    told = {row.queue: row.depth for row in spark.sql("SELECT * FROM queues").collect()}
    assert told == {queue: depths[queue] for queue in QUEUES}
    history = "SELECT message_id, count(*) AS events FROM message_history GROUP BY message_id"
    assert {row.message_id: row.events for row in spark.sql(history).collect()} == live.events


def test_views_are_right_after_each_kill_in_the_midst_of_a_commit(
    spark: SparkSession, live: LiveStore, tmp_path: Path
) -> None:
    root = open_root(tmp_path / "root")
    views.register(spark, root, ("queue_messages", "queues", "message_history"))
    for number in range(KILLS):
        job = started_job("compact.run(spark, root, at=at)", [str(root.path)])
        job.reach("Spark is there")
        is_there = _appears(root, PLACES[number % len(PLACES)])
        live.go_on()
        job.begin()
        job.reach("healed")
        job.kill_when(is_there)
        live.at_rest()
        _assert_the_views_say_the_ledger(spark, live)
        empty = " UNION ALL ".join(f"SELECT '{view}' AS view FROM {view}" for view in EMPTY)
        assert query(root, empty).num_rows == 0
    compact.run(spark, root)
    views.register(spark, root)
    _assert_the_views_say_the_ledger(spark, live)
    for view in EMPTY:
        assert spark.sql(f"SELECT * FROM {view}").collect() == [], view
    _, entries, *_ = stored(root)
    assert {key[1]: key[0] for key in entries} == {
        message_id: queue for message_id, (queue, _) in live.waiting.items()
    }
