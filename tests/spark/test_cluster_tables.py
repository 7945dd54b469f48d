"""A compaction whose tables are joined by Hadoop's view file system, stopped between two commits.

The bucket is a folder here, which executors name as such; how they reach a real one is in
tests/system/test_cluster_jobs.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.cluster_tables import LOGS
from sparkstore.bucket.job_copy import job_copy
from sparkstore.compaction import compact
from sparkstore.compaction.plans.compact_plan import Upkeep
from sparkstore.config import StoreConfig
from sparkstore.jobs.report import CompactReport
from sparkstore.reconcile.invariants import check
from sparkstore.session import tell_hadoop
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.root import Root, open_root
from tests.support.spark.killing import Stopped, stop_at
from tests.support.stores.stores import done


def fill(path: Path, first: int, last: int) -> None:
    """Messages `first` to `last` on queue `q`; all but every fourth leave it again."""
    store = DeltaMessageStore(path, StoreConfig(commit_interval_ms=0, segment_records=8))
    if not store.recover().queues:
        done(store.create, Queue("q"))
    for number in range(first, last + 1):
        message = store.message(MessageHeader(), b"%d" % number)
        done(store.enqueue, message, "q")
        if number % 4:
            done(store.acquire, message.message_id, "q", "a")
            done(store.dequeue, message.message_id, "q", "a")
    store.close()


def run(spark: SparkSession, root: Root, folder: Path, stopped_at: str = "") -> CompactReport:
    """Compact; one that is stopped has committed and not published it."""
    stop = stop_at(stopped_at)
    with job_copy(LocalStorage(root.path), "compact", folder, root.path.as_uri()) as copy:
        assert copy.root.remote is not None
        tell_hadoop(spark, copy.root.remote.hadoop_settings())

        def at(boundary: str) -> None:
            stop(boundary)
            copy.publish(boundary)

        report = compact.run(
            spark,
            copy.root,
            upkeep=Upkeep(history_days=0, reader_grace_s=0),
            at=at,
            check=lambda _: None,
        )
        copy.finish()
    return report


def versions(root: Root) -> dict[str, int]:
    return {name: DeltaTable(str(root.table(name))).version() for name in ("history", "state")}


def bodies(path: Path) -> list[bytes]:
    store = DeltaMessageStore(path)
    found = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    return found


def test_what_spark_commits_counts_once_it_is_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, jobs = tmp_path / "root", tmp_path / "jobs"
    fill(path, 1, 8)
    root = open_root(path)
    first = run(
        spark, root, jobs
    )  # a compaction is a segment of history, and the next one passes it
    fill(path, 9, 12)
    before = versions(root)
    with pytest.raises(Stopped):
        run(spark, root, jobs, stopped_at="appended")
    assert versions(root) == before
    report = run(spark, root, jobs)
    assert (first.records_moved + report.records_moved, report.position_after) == (35, 35)
    assert report.rows_dropped > 0
    assert versions(root)["history"] > 1
    assert all(finding.holds for finding in check(root, deep=True))
    assert bodies(path) == [b"%d" % number for number in range(1, 13) if number % 4 == 0]
    assert not [*LocalStorage(path).files(LOGS)]
