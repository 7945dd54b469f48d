"""The log that Spark on a cluster commits to, private to one run: what of it reaches the bucket.

What Spark commits there is committed here as it would be: data files in the bucket, an entry in the
private log. Spark's own, on a cluster, is in tests/system/test_cluster_jobs.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.bucket_download import local_copy
from sparkstore.bucket.cluster_tables import LOGS, ClusterTables, s3a, s3a_settings
from sparkstore.bucket.job_copy import JobCopy, job_copy
from sparkstore.bucket.job_lease import NAME as LEASE
from sparkstore.cli.command_line import main
from sparkstore.cli.health import reconcile
from sparkstore.compaction.state_fold import check_is_newest, read_meta
from sparkstore.config import StoreConfig
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.recovery.recovery import recover
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.delta_contents import commit, contents
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from tests.support.objects.copies import compact
from tests.support.objects.s3_server import S3Server, served
from tests.support.stores.stores import done

URI = "s3://lake/queues"
AT = "s3a://lake/queues"
FILE = "segment=1/part-0.parquet"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path) -> ObjectStorage:
    """A root with a message, compacted once on a disk."""
    store = DeltaMessageStore(URI, StoreConfig(copy_dir=str(tmp_path / "store")))
    store.recover()
    done(store.create, Queue("q"))
    done(store.enqueue, store.message(MessageHeader(), b"one"), "q")
    store.close()
    bucket = ObjectStorage(URI)
    with job_copy(bucket, "compact", tmp_path / "first") as copy:
        compact(copy.root.path)
        copy.finish()
    return bucket


@contextmanager
def on_cluster(bucket: ObjectStorage, folder: Path) -> Iterator[tuple[JobCopy, ClusterTables]]:
    """A copy for a job on a cluster, and the tables that Spark has then."""
    with job_copy(bucket, "compact", folder, AT) as copy:
        assert isinstance(copy.root.remote, ClusterTables)
        yield copy, copy.root.remote


def mounted(tables: ClusterTables) -> dict[str, str]:
    """What stands where in Spark's view of the root; the places as below the root."""
    found = tables.hadoop_settings()
    mount = tables.location("").removeprefix("viewfs://").rstrip("/")
    links = f"fs.viewfs.mounttable.{mount}.link./"
    return {
        name.removeprefix(links): place.removeprefix(f"{AT}/")
        for name, place in found.items()
        if name.startswith(links)
    }


def run_of(tables: ClusterTables) -> str:
    """The prefix of a run's logs."""
    return mounted(tables)["history/_delta_log"].removesuffix("/history/_delta_log")


def commit_as_spark(bucket: ObjectStorage, tables: ClusterTables, file: str = FILE) -> None:
    """One more version of `history`, in the log that Spark has, with one more data file."""
    run = ObjectStorage(f"{URI}/{run_of(tables)}")
    base = contents(run, "history")
    add = {"path": file, "partitionValues": {"segment": "1"}, "size": 4, "modificationTime": 0}
    assert bucket.put_if_absent(f"history/{file}", b"rows")
    wanted = {**base.adds, file: add}
    assert commit(run, "history", base, wanted, base, {"userMetadata": file}, now_ms=0)


def names(server: S3Server, under: str = "") -> set[str]:
    here = f"queues/{under}"
    return {name.removeprefix("queues/") for name in server.objects if name.startswith(here)}


def test_spark_has_the_real_data_files_and_a_log_of_its_own(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "jobs") as (copy, tables):
        run = run_of(tables)
        assert run.startswith(f"{LOGS}/")
        assert mounted(tables) == {
            "journal": "journal",
            "history": "history",
            "history/_delta_log": f"{run}/history/_delta_log",
            "state": "state",
            "state/_delta_log": f"{run}/state/_delta_log",
        }
        for table in ("history", "state"):
            assert copy.root.spark_location(table) == tables.location(table)
            own, real = f"{run}/{table}/_delta_log", f"{table}/_delta_log"
            copied = {name.removeprefix(own) for name in names(server, own)}
            assert copied == {name.removeprefix(real) for name in names(server, real)} != set()
    assert names(server, LOGS) == set()


def test_the_driver_has_the_logs_and_of_the_rows_only_meta(
    bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "jobs") as (copy, _):
        files = {file.parent.parent.name for file in copy.root.path.rglob("*/*/*/*.parquet")}
        assert files == {"part=meta"}
        assert read_meta(copy.root).position > 0
        for table in ("journal", "history", "state"):
            DeltaTable(str(copy.root.table(table)))
        # There is nothing to fsync here, and what the log names is not here either.
        assert mark_durable(copy.root, {"history": newest_version(copy.root.history)}) == []


def test_what_spark_committed_is_published_with_the_data_files_that_are_there(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "jobs") as (copy, tables):
        before = newest_version(copy.root.history)
        commit_as_spark(bucket, tables)
        assert contents(bucket, "history").version == before
        check_is_newest(copy.root, "history", FILE)
        server.requests.clear()
        copy.publish()
        puts = [request.key for request in server.requests if request.method == "PUT"]
        assert puts == [f"queues/history/_delta_log/{before + 1:020d}.json"]
        copy.finish()
    found = contents(bucket, "history")
    assert (found.version, FILE in found.adds) == (before + 1, True)


def test_checkpoints_that_spark_made_are_published(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "jobs") as (copy, tables):
        commit_as_spark(bucket, tables)
        version = newest_version(copy.root.history) + 1
        name = f"{version:020d}.checkpoint.parquet"
        for file in (name, "_last_checkpoint"):
            bucket.put_if_absent(f"{run_of(tables)}/history/_delta_log/{file}", b"checkpoint")
        tables.fetch("history")
        copy.publish()
        copy._tables["history"].publish_checkpoint()
    assert server.objects[f"queues/history/_delta_log/{name}"] == b"checkpoint"
    assert "queues/history/_delta_log/_last_checkpoint" not in server.objects


def test_what_a_killed_run_had_not_published_is_forgotten_and_done_again(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "killed") as (copy, tables):
        before = newest_version(copy.root.history)
        commit_as_spark(bucket, tables, "segment=1/lost.parquet")
        left = dict(server.objects)
    server.objects.update(left)  # as if it had ended nothing
    del server.objects[f"queues/{LEASE}"]  # it has run out
    assert names(server, LOGS)
    with on_cluster(bucket, tmp_path / "jobs") as (copy, tables):
        assert names(server, LOGS) == names(server, run_of(tables))
        assert newest_version(copy.root.history) == before
        commit_as_spark(bucket, tables)
        check_is_newest(copy.root, "history", FILE)
        copy.finish()
    found = contents(bucket, "history")
    assert (found.version, "segment=1/lost.parquet" in found.adds) == (before + 1, False)
    noted = json.loads(server.objects["queues/jobs/unnamed.json"])
    assert "history/segment=1/lost.parquet" in noted  # and goes a day later (test_job_copy)


def test_a_run_that_was_paused_while_another_worked_publishes_nothing(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with on_cluster(bucket, tmp_path / "paused") as (paused, old):
        commit_as_spark(bucket, old, "segment=1/late.parquet")
        old.fetch("history")
        del server.objects[f"queues/{LEASE}"]
        with on_cluster(bucket, tmp_path / "jobs") as (copy, tables):
            commit_as_spark(bucket, tables)
            check_is_newest(copy.root, "history", FILE)
            copy.finish()
        published = contents(bucket, "history")
        with pytest.raises(Unavailable, match="run it again"):
            paused.publish()
        # Its log is gone: what it commits after that is not found either.
        with pytest.raises(Unavailable, match="is not this job's: run it again"):
            check_is_newest(paused.root, "history", "another commit")
    assert contents(bucket, "history") == published
    assert FILE in published.adds


def test_a_job_that_only_reads_names_the_version_that_it_looked_up(
    server: S3Server, bucket: ObjectStorage
) -> None:
    with local_copy(URI, whole=True, executors_at=AT) as root:
        assert root.remote is not None
        for table in ("journal", "history", "state"):
            version = contents(bucket, table).version
            assert root.spark_location(table) == f"{AT}/{table}@v{version}"
        assert recover(root).last_position > 0
        assert not [*root.history.rglob("segment=*/*.parquet")]
    assert names(server, LOGS) == set()


def test_data_files_that_are_gone_or_cut_are_told(server: S3Server, bucket: ObjectStorage) -> None:
    with local_copy(URI, whole=True, executors_at=AT) as root:
        assert root.remote is not None
        assert root.remote.lost_files("history") == root.remote.lost_files("journal") == {}
        for table, content in (("history", None), ("journal", b"cut")):
            path = next(iter(contents(bucket, table).adds))
            del server.objects[f"queues/{table}/{path}"]
            if content is not None:
                server.objects[f"queues/{table}/{path}"] = content
            assert [*root.remote.lost_files(table)] == [path]
        assert "is gone" in str(root.remote.lost_files("history"))
        assert "has 3 bytes instead of" in str(root.remote.lost_files("journal"))


def test_a_replica_on_this_machine_is_not_compared_by_executors_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reconcile, "where_executors_read", lambda _uri: AT)
    for option in (["--replica", "/mnt/replica"], ["--repair"]):
        assert main(["reconcile", *option, URI]) == 2
        told = capsys.readouterr().err
        assert "work on this machine, which executors do not see" in told


def test_only_s3_is_read_by_executors_and_no_strange_prefix() -> None:
    assert s3a("s3://lake/some/queues") == "s3a://lake/some/queues"
    for uri in ("gs://lake/queues", "s3://lake/my queues", "s3://lake/100%25"):
        with pytest.raises(InvalidRequest, match="give spark-submit --master 'local"):
            s3a(uri)


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, {}),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, {"fs.s3a.endpoint.region": "eu-west-1"}),
        (
            {"AWS_ENDPOINT": "https://s3.here", "AWS_REGION": "x"},
            {
                "fs.s3a.endpoint": "https://s3.here",
                "fs.s3a.path.style.access": "true",
                "fs.s3a.endpoint.region": "x",
            },
        ),
        (
            {"AWS_ENDPOINT_URL": "https://s3.here", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            {"fs.s3a.endpoint": "https://s3.here", "fs.s3a.path.style.access": "false"},
        ),
    ],
)
def test_executors_look_for_the_bucket_where_the_driver_does(
    environment: dict[str, str], settings: dict[str, str]
) -> None:
    assert s3a_settings(environment | {"AWS_SECRET_ACCESS_KEY": "secret"}) == settings
