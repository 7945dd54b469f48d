"""Jobs on a root in a bucket, whatever is killed, paused or lost; the store that serves follows.

What a compaction commits is committed here by deltalake (`copies.compact`): a copy does not care
who commits to it. Spark's own is in tests/spark/test_bucket_jobs.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket import job_copy as jobs
from sparkstore.bucket.job_copy import JobCopy, check_may_work_on, folder_of_jobs, job_copy
from sparkstore.bucket.job_lease import NAME as LEASE
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.log.start import open_log
from sparkstore.recovery.recovery import recover
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.fencing import change_stored_identity
from tests.support.objects.copies import compact
from tests.support.objects.s3_server import DROP, Request, S3Server, once, served
from tests.support.roots.logs import opened, until, write
from tests.support.stores.stores import done

URI = "s3://lake/queues"
ROUNDS = 4


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.fixture
def bucket(server: S3Server) -> ObjectStorage:
    return ObjectStorage(URI)


def config(folder: Path, **more: float) -> StoreConfig:
    return StoreConfig(copy_dir=str(folder), commit_interval_ms=0, **more)  # type: ignore[arg-type]


def fill(folder: Path, *bodies: bytes) -> None:
    """Serve the bucket from a folder, put these on queue `q`, end well."""
    store = DeltaMessageStore(URI, config(folder))
    if "q" not in {queue.name for queue in store.recover().queues}:
        done(store.create, Queue("q"))
    for body in bodies:
        done(store.enqueue, store.message(MessageHeader(), body), "q")
    store.close()


def bodies_in(folder: Path) -> list[bytes]:
    store = DeltaMessageStore(URI, config(folder))
    found = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    return found


def run_job(bucket: ObjectStorage, folder: Path) -> int:
    """A compaction, with a publication after each of its commits."""
    with job_copy(bucket, "compact", folder) as copy:
        compact_published(copy)
        return copy.finish()


def compact_published(copy: JobCopy) -> None:
    compact(copy.root.path)
    copy.publish("folded")


def folded(bucket: ObjectStorage, folder: Path) -> int:
    """P, in the bucket."""
    with job_copy(bucket, "look", folder) as copy:
        table = DeltaTable(str(copy.root.state)).to_pyarrow_table(filters=[("part", "=", "meta")])
        return max(table["position"].to_pylist(), default=0)


def test_what_a_job_published_is_what_any_store_begins_with(
    bucket: ObjectStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a", b"one", b"two")
    run_job(bucket, tmp_path / "jobs")
    first = folded(bucket, tmp_path / "look")
    fill(tmp_path / "b", b"three")
    run_job(bucket, tmp_path / "jobs")  # with the copy that the first one left
    assert folded(bucket, tmp_path / "look") > first > 0
    for command in (["queues"], ["verify", "--deep"], ["queues", "--holders"]):
        assert main([*command, URI]) == 0
    assert capsys.readouterr().err == ""
    assert bodies_in(tmp_path / "c") == [b"one", b"two", b"three"]


def test_a_store_that_serves_meanwhile_follows_and_trims(
    bucket: ObjectStorage, tmp_path: Path
) -> None:
    settings = config(tmp_path / "a", reader_grace_s=0, segment_records=5)
    store = DeltaMessageStore(URI, settings)
    done(store.create, Queue("q"))
    for number in range(30):
        done(store.enqueue, store.message(MessageHeader(), b"%d" % number), "q")
    run_job(bucket, tmp_path / "jobs")
    copy = tmp_path / "a"

    def segments() -> set[str]:
        return {path.name for path in (copy / "journal").glob("segment=*") if any(path.iterdir())}

    def trimmed() -> bool:
        files = DeltaTable(str(copy / "journal")).file_uris()
        return not any("segment=2/" in file for file in files)

    until(trimmed)
    ids = [*store.recover().entries["q"]]
    assert [store.load(number).body for number in ids] == [b"%d" % n for n in range(30)]
    done(store.enqueue, store.message(MessageHeader(), b"30"), "q")  # it goes on
    store.close()
    assert bodies_in(tmp_path / "b") == [b"%d" % n for n in range(31)]
    assert segments(), "the newest segment stays"


def test_a_job_that_is_paused_before_its_commit_overwrites_nothing(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    """Another takes over between its last look at its lease and the put of its commit."""
    lost = 0
    expected: list[bytes] = []
    for number in range(ROUNDS):
        expected.append(b"%d" % number)
        fill(tmp_path / "store", expected[-1])
        table = ("history", "state")[number % 2]
        is_taken: list[int] = []

        def paused(request: Request, table: str = table, taken: list[int] = is_taken) -> None:
            if request.method == "PUT" and re.search(rf"{table}/_delta_log/\d+\.json", request.key):
                server.faults = []
                server.objects.pop(f"queues/{LEASE}")  # it has run out
                run_job(bucket, tmp_path / "other")
                taken.append(folded(bucket, tmp_path / "look"))

        with job_copy(bucket, "compact", tmp_path / "paused") as copy:
            server.faults = [paused]
            with pytest.raises(Unavailable, match="run it again"):
                compact_published(copy)
        lost += folded(bucket, tmp_path / "look") != is_taken[0]
    assert lost == 0
    assert bodies_in(tmp_path / "b") == expected


def test_a_job_whose_lease_another_has_publishes_nothing(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", b"one")
    with job_copy(bucket, "compact", tmp_path / "jobs") as copy:
        compact(copy.root.path)
        before = {*server.objects}
        copy._lease._lost = "the job of elsewhere has it"
        with pytest.raises(Unavailable, match="elsewhere has it: run it again"):
            copy.publish("folded")
        assert {*server.objects} == before


def test_a_job_that_is_killed_between_any_two_changes_loses_nothing(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", *(b"%d" % n for n in range(8)))
    run_job(bucket, tmp_path / "jobs")
    fill(tmp_path / "a", b"8", b"9")
    server.snapshots = []
    run_job(bucket, tmp_path / "jobs")
    snapshots, server.snapshots = server.snapshots, None
    expected = [b"%d" % n for n in range(10)]
    chosen = random.Random(18).sample(range(len(snapshots)), 4)
    for number in sorted({*chosen, len(snapshots) - 1}):
        server.objects = dict(snapshots[number])
        server.objects.pop(f"queues/{LEASE}", None)
        run_job(bucket, tmp_path / f"jobs{number}")
        assert bodies_in(tmp_path / str(number)) == expected, number


def test_answers_that_are_lost_lose_and_double_nothing(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", b"one")
    server.faults = [once("PUT", rf"{table}/_delta_log", DROP) for table in ("history", "state")]
    run_job(bucket, tmp_path / "jobs")
    versions = [key for key in server.objects if re.search(r"history/_delta_log/\d+\.json", key)]
    assert len(versions) == 2
    assert bodies_in(tmp_path / "b") == [b"one"]


def test_a_bucket_that_fails_in_the_middle_is_told_and_the_next_run_does_it(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", b"one")
    server.faults = [lambda r: 403 if r.method == "PUT" and "state/part" in r.key else None]
    with pytest.raises(StoreError, match="may not put"):
        run_job(bucket, tmp_path / "jobs")
    server.faults = []
    assert folded(bucket, tmp_path / "look") == 0
    run_job(bucket, tmp_path / "jobs")
    assert folded(bucket, tmp_path / "look") > 0


def test_files_that_no_version_names_go_a_day_later_after_a_commit(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state_files() -> set[str]:
        return {key for key in server.objects if re.search(r"state/part.*parquet", key)}

    fill(tmp_path / "a", b"one")
    run_job(bucket, tmp_path / "jobs")
    old = state_files()
    stray = "queues/state/part=entry/block=0/part-stray.parquet"
    server.objects[stray] = b"of a job that was killed"
    fill(tmp_path / "a", b"two")
    assert run_job(bucket, tmp_path / "jobs") == 0  # only noted
    assert old < state_files()
    monkeypatch.setattr(jobs, "_READER_S", 0.0)
    with job_copy(bucket, "compact", tmp_path / "jobs") as copy:
        assert copy.finish() == 0, "it has committed nothing: a paused job may still name them"
    assert old < state_files()
    fill(tmp_path / "a", b"three")
    assert run_job(bucket, tmp_path / "jobs") == len(old) + 1
    assert not old & state_files()
    assert stray not in server.objects
    assert bodies_in(tmp_path / "b") == [b"one", b"two", b"three"]


def test_a_store_that_could_not_follow_for_long_finds_its_way(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    """The versions that it lacks are gone; a checkpoint stands for them."""
    with opened(URI, config(tmp_path / "a", reader_grace_s=0)) as log:
        write(log, 1, 3)
        publisher = log._publisher
        assert publisher is not None
        publisher.jobs.stop()
        for first in (4, 6, 8):
            run_job(bucket, tmp_path / "jobs")
            write(log, first, first + 1)
        with job_copy(bucket, "compact", tmp_path / "jobs") as copy:
            compact(copy.root.path)
            for table in jobs.TABLES:
                DeltaTable(str(copy.root.table(table))).create_checkpoint()
            copy.finish()
            newest = {
                name: DeltaTable(str(copy.root.table(name))).version() for name in jobs.TABLES
            }
        for key in [*server.objects]:
            match = re.search(r"(history|state)/_delta_log/(\d+)\.json", key)
            if match and int(match[2]) < newest[match[1]]:
                del server.objects[key]
        publisher.jobs.follow()
        assert publisher.jobs.versions == newest
        rows = DeltaTable(str(log.root.history)).to_pyarrow_table()
        assert rows.num_rows == max(rows["position"].to_pylist())


def test_a_job_has_no_business_on_a_replica_or_a_fenced_root(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="is not a sparkstore root"):
        check_may_work_on(bucket)
    fill(tmp_path / "a", b"one")
    with job_copy(bucket, "compact", tmp_path / "jobs") as copy:
        compact(copy.root.path)
        change_stored_identity(bucket, lambda _: {"role": "fenced"})
        server.objects[f"queues/history/_delta_log/{1:020}.json"] = b"{}"  # as a promotion does
        with pytest.raises(Fenced, match="another root took over"):
            copy.publish()
    change_stored_identity(bucket, lambda _: {"role": "replica", "primary": "/the/primary"})
    with pytest.raises(Fenced, match="run the job there"):
        check_may_work_on(bucket)


def test_the_folder_of_jobs_is_none_of_a_store(
    bucket: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder_of_jobs(URI, str(tmp_path / "copy")) == tmp_path / "copy-jobs"
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert Path.home() / ".cache" in folder_of_jobs(URI).parents, "nowhere below where one stands"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fill(tmp_path / "a", b"one")
    log = open_log(URI, StoreConfig(commit_interval_ms=0)).log
    run_job(bucket, folder_of_jobs(URI))  # beside a store of the same user
    log.close()
    assert log.root.path != folder_of_jobs(URI)


def test_what_the_bucket_lost_is_put_back_from_a_copy_that_has_it(
    server: S3Server, bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", b"one", b"two")
    with job_copy(bucket, "compact", tmp_path / "jobs") as copy:
        compact(copy.root.path)
        copy.finish()
    before = dict(server.objects)
    lost = next(name for name in before if "/history/" in name and name.endswith(".parquet"))
    cut = next(name for name in before if "/journal/segment=" in name)
    del server.objects[lost]
    server.objects[cut] = before[cut][:-1]
    with pytest.raises(CorruptData, match="is gone"), job_copy(bucket, "x", tmp_path / "new"):
        pass
    with job_copy(bucket, "reconcile", tmp_path / "another", mends=True) as copy:
        assert copy.put_back() == []
        assert not (copy.root.path / lost.removeprefix("queues/")).exists()
    with job_copy(bucket, "reconcile", tmp_path / "jobs", mends=True) as copy:
        assert {f"queues/{name}" for name in copy.put_back()} == {lost, cut}
        assert copy.put_back() == []
    assert {name: server.objects[name] for name in (lost, cut)} == {
        name: before[name] for name in (lost, cut)
    }


def test_a_job_that_repairs_sees_what_the_store_did_meanwhile(
    bucket: ObjectStorage, tmp_path: Path
) -> None:
    fill(tmp_path / "a", b"one")
    with job_copy(bucket, "reconcile", tmp_path / "jobs", mends=True) as copy:
        before = recover(copy.root).last_position
        fill(tmp_path / "a", b"two")
        copy.follow_journal()
        assert recover(copy.root).last_position > before
