"""Jobs on a root in a bucket, given to a standalone Spark cluster: a master and two workers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.cluster_tables import LOGS
from sparkstore.bucket.job_copy import job_copy
from sparkstore.bucket.job_lease import NAME as LEASE
from sparkstore.cli.target import opened_root
from sparkstore.config import StoreConfig
from sparkstore.reconcile.invariants import check
from sparkstore.storage.objects import ObjectStorage
from tests.support.checkout import CHECKOUT
from tests.support.objects import s3_server, versitygw
from tests.support.objects.copies import compact
from tests.support.objects.s3_server import DROP, Request, S3Server
from tests.support.spark.cluster import (
    ENVIRONMENT,
    SPARK,
    cluster,
    event_log,
    submit,
    tasks_by_executor,
)
from tests.support.stores.stores import done

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.spark]

URI = "s3://lake/queues"
WORKERS = 2


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), WORKERS) as url:
        yield url


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with s3_server.served(monkeypatch) as server:
        yield server


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with versitygw.served(tmp_path / "buckets", monkeypatch):
        # Not before: the server is built once, into the cache that there was.
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield


def fill(*bodies: bytes) -> None:
    """Messages on queue `q`; every third leaves it again."""
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0, segment_records=8))
    if not store.recover().queues:
        done(store.create, Queue("q"))
    for number, body in enumerate(bodies, 1):
        message = store.message(MessageHeader(), body)
        done(store.enqueue, message, "q")
        if number % 3 == 0:
            done(store.acquire, message.message_id, "q", "a")
            done(store.dequeue, message.message_id, "q", "a")
    store.close()


def kept(bodies: list[bytes]) -> list[bytes]:
    return [body for number, body in enumerate(bodies, 1) if number % 3]


def waiting() -> list[bytes]:
    """What a machine finds that has no copy."""
    store = DeltaMessageStore(URI)
    found = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    return found


def ended(job: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said, and on standard error."""
    try:
        return job.communicate(timeout=600)
    finally:
        job.kill()
        job.wait()


def report_of(job: subprocess.Popen[str]) -> dict[str, Any]:
    told, said = ended(job)
    assert job.returncode == 0, said
    report: dict[str, Any] = json.loads(told.splitlines()[-1])
    return report


@contextmanager
def tables(uri: str) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """The rows of each table, in one order."""
    with opened_root(uri, whole=True) as root:
        assert all(finding.holds for finding in check(root, deep=True))
        found = {
            name: DeltaTable(str(root.table(name))).to_pyarrow_table().to_pylist()
            for name in ("journal", "history", "state")
        }
    yield {name: sorted(rows, key=repr) for name, rows in found.items()}


def by_position(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in their order, without the segment: a compaction gives history its own."""
    kept = [{name: row[name] for name in row if name != "segment"} for row in rows]
    return sorted(kept, key=lambda row: int(row["position"]))


def test_executors_of_a_cluster_compact_a_bucket(
    master: str, server: S3Server, tmp_path: Path
) -> None:
    bodies = [b"%d" % number for number in range(12)]
    fill(*bodies)
    log = event_log(tmp_path / "events")
    report = report_of(submit(master, "compact", "--nice", "0", URI, settings=log))
    by_executor = tasks_by_executor(tmp_path / "events")
    assert len(by_executor) == WORKERS, by_executor
    assert "driver" not in by_executor
    with tables(URI) as rows:
        assert report["records_moved"] == report["position_after"] == len(rows["journal"])
        assert by_position(rows["history"]) == by_position(rows["journal"])
        entries = [row for row in rows["state"] if row["part"] == "entry"]
        assert len(entries) == len(kept(bodies))
    assert waiting() == kept(bodies)
    assert not [name for name in server.objects if name.startswith(f"queues/{LOGS}")]


@pytest.mark.thorough
def test_a_cluster_commits_what_threads_of_one_machine_commit(
    master: str, judge: None, tmp_path: Path
) -> None:
    fill(*(b"%d" % number for number in range(30)))
    copied(URI, "s3://lake/other", tmp_path)
    arguments = ("--nice", "0", "--step-records", "25")
    settings = event_log(tmp_path / "events") | {"spark.cores.max": str(2 * WORKERS)}
    there = report_of(submit(master, "compact", *arguments, URI, settings=settings))
    assert len(tasks_by_executor(tmp_path / "events")) == 2 * WORKERS
    here = report_of(submit("local[2]", "compact", *arguments, "s3://lake/other"))
    differ = {"root", *(name for name in there if name.endswith("seconds"))}
    assert {**there, **dict.fromkeys(differ)} == {**here, **dict.fromkeys(differ)}
    with tables(URI) as rows, tables("s3://lake/other") as others:
        assert rows == others


def copied(uri: str, to: str, folder: Path) -> None:
    """Copy all objects of a prefix."""
    old, new = ObjectStorage(uri), ObjectStorage(to)
    for file in [*old.files()]:
        old.download(file.name, folder / "object")
        new.upload(file.name, folder / "object")


@pytest.mark.thorough
@pytest.mark.parametrize(("table", "lands"), [("history", False), ("state", True)])
def test_a_driver_that_is_killed_before_it_publishes_loses_nothing(
    master: str, server: S3Server, table: str, lands: bool
) -> None:
    bodies = [b"%d" % number for number in range(12)]
    fill(*bodies)
    jobs: list[subprocess.Popen[str]] = []

    def kills(request: Request) -> int | None:
        if request.method != "PUT" or not request.key.startswith(f"queues/{table}/_delta_log/"):
            return None
        for process in [*psutil.Process(jobs[0].pid).children(recursive=True), jobs[0]]:
            process.kill()  # the program first, then the JVM that started it
        return DROP if lands else 500

    server.faults = [kills]
    jobs.append(submit(master, "compact", "--nice", "0", URI))
    ended(jobs[0])
    server.faults = []
    assert jobs[0].returncode == -9
    assert [name for name in server.objects if name.startswith(f"queues/{LOGS}")]
    assert waiting() == kept(bodies)
    del server.objects[f"queues/{LEASE}"]  # it has run out
    report = report_of(submit(master, "compact", "--nice", "0", URI))
    assert (report["history_before"] > 0) is (table == "state" or lands)
    assert (report["position_before"] > 0) is (table == "state" and lands)
    assert waiting() == kept(bodies)
    with tables(URI) as rows:
        journal = [row for row in rows["journal"] if row["position"] <= report["history_after"]]
        assert by_position(rows["history"]) == by_position(journal)
    assert not [name for name in server.objects if name.startswith(f"queues/{LOGS}")]


@pytest.mark.thorough
def test_executors_of_a_cluster_find_what_is_wrong_with_a_bucket(
    master: str, server: S3Server, tmp_path: Path
) -> None:
    fill(*(b"%d" % number for number in range(12)))
    compact_here(tmp_path / "jobs")
    fill(*(b"%d" % number for number in range(6)))
    log = event_log(tmp_path / "events")
    before = dict(server.objects)
    report = report_of(submit(master, "reconcile", "--nice", "0", URI, settings=log))
    assert (report["outcome"], report["findings"]) == ("done", [])
    assert report["position"] > 0
    assert "driver" not in tasks_by_executor(tmp_path / "events")
    assert server.objects == before
    lost = next(name for name in before if "/history/segment=" in name)
    del server.objects[lost]
    job = submit(master, "reconcile", "--nice", "0", URI)
    told, said = ended(job)
    assert job.returncode == 1, said
    found = json.loads(told.splitlines()[-1])["findings"]
    assert lost.removeprefix("queues/") in {finding["subject"] for finding in found}
    assert server.objects == {name: content for name, content in before.items() if name != lost}


def compact_here(folder: Path) -> None:
    """What a compaction commits, without a JVM."""
    with job_copy(ObjectStorage(URI), "compact", folder) as copy:
        compact(copy.root.path)
        copy.finish()


@pytest.mark.parametrize("job", ["compact", "reconcile"])
def test_a_job_whose_executors_could_not_read_the_bucket_is_refused_at_once(job: str) -> None:
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", "spark://127.0.0.1:1"]
    refused = subprocess.run(
        [*submit, str(CHECKOUT / "jobs" / f"{job}.py"), URI],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=CHECKOUT,
    )
    assert refused.returncode == 2
    assert f"{URI}: the executors of spark://127.0.0.1:1 have no client of S3" in refused.stdout
    assert "give spark-submit --properties-file conf/spark-cluster.conf" in refused.stdout
