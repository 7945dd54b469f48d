"""Spark's own commits to a root in a bucket: published one by one, whatever was killed between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.job_copy import JobCopy, job_copy
from sparkstore.cli.command_line import main
from sparkstore.cli.target import opened_root
from sparkstore.compaction import compact
from sparkstore.compaction.plans.compact_plan import Upkeep
from sparkstore.config import StoreConfig
from sparkstore.errors import Fenced
from sparkstore.jobs.failpoints import Failpoint
from sparkstore.reconcile.invariants import check
from sparkstore.storage.objects import ObjectStorage
from sparkstore.views.views import register
from tests.support.objects.copies import bodies_in
from tests.support.objects.s3_server import S3Server, served
from tests.support.spark.killing import Stopped, stop_at
from tests.support.stores.stores import done

URI = "s3://lake/queues"
PLACES = ("appended", "segment rewritten")
"""Where a job is killed, each after a commit of another kind."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


def fill(first: int, last: int) -> None:
    """Messages `first` to `last` on queue `q`; every third leaves it again."""
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0, segment_records=8))
    if not store.recover().queues:
        done(store.create, Queue("q"))
    for number in range(first, last + 1):
        message = store.message(MessageHeader(), b"%d" % number)
        done(store.enqueue, message, "q")
        if number % 3 == 0:
            done(store.acquire, message.message_id, "q", "a")
            done(store.dequeue, message.message_id, "q", "a")
    store.close()


def put_expired() -> None:
    """One more message on `q`, which nobody needs any more."""
    store = DeltaMessageStore(URI, StoreConfig(commit_interval_ms=0))
    done(store.enqueue, store.message(MessageHeader(expires_at=1), b"late"), "q")
    store.close()


def expected(last: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, last + 1) if number % 3]


def bodies() -> list[bytes]:
    """What a machine finds that has no copy."""
    with opened_root(URI, whole=True) as root:
        assert all(finding.holds for finding in check(root, deep=True))
    store = DeltaMessageStore(URI)
    found = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    return found


def stopped(copy: JobCopy, place: str) -> Failpoint:
    """Publishes at each boundary; stops the job after one of them."""
    stop = stop_at(place)

    def at(boundary: str) -> None:
        copy.publish(boundary)
        stop(boundary)

    return at


def no_check(_where: Path) -> None:
    """The bucket was asked."""


def lose_the_newest_file_of_history(server: S3Server) -> None:
    """Its records are in the journal still."""
    files = [name for name in server.objects if name.startswith("queues/history/segment=")]
    del server.objects[max(files, key=lambda name: int(name.split("=")[1].split("/")[0]))]


def hold_one() -> int:
    """Somebody who will not come back has acquired a message of `q`; which one."""
    store = DeltaMessageStore(URI)
    first = next(iter(store.recover().entries["q"]))
    done(store.acquire, first, "q", "dead")
    store.close()
    return first


def holder_of(message_id: int) -> str | None:
    store = DeltaMessageStore(URI)
    found = store.recover().entries["q"][message_id].acquired_by
    store.close()
    return found


def check_repairs(
    server: S3Server, capsys: pytest.CaptureFixture[str], wanted: list[bytes]
) -> None:
    held = hold_one()
    lose_the_newest_file_of_history(server)
    assert main(["reconcile", "--json", "--no-progress", "--repair", URI]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["root"], report["errors"]) == (URI, 0)
    assert {finding["repair"] for finding in report["findings"]} == {"done"}
    assert bodies() == wanted
    assert holder_of(held) is None


def check_replicates(folder: Path, capsys: pytest.CaptureFixture[str], wanted: list[bytes]) -> None:
    assert main(["replicate", "--json", "--no-progress", URI, str(folder)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["primary"], report["lag_records"], report["is_bootstrap"]) == (URI, 0, True)
    assert main(["promote", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["old_fenced"]
    assert bodies_in(folder) == wanted
    with pytest.raises(Fenced, match="took over"):
        DeltaMessageStore(URI)


def test_jobs_killed_between_their_commits_leave_a_root_that_the_next_one_goes_on_with(
    spark: SparkSession,
    server: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = 0
    upkeep = Upkeep(history_days=0, reader_grace_s=0)
    for place in PLACES:
        fill(last + 1, last + 4)
        last += 4
        with (
            pytest.raises(Stopped),
            job_copy(ObjectStorage(URI), "compact", tmp_path / "jobs") as copy,
        ):
            compact.run(spark, copy.root, upkeep=upkeep, at=stopped(copy, place), check=no_check)
        assert bodies() == expected(last), place
    assert main(["compact", "--json", "--no-progress", "--min-records", "1000000", URI]) == 0
    assert "nothing done" in capsys.readouterr().err
    put_expired()
    assert main(["compact", "--json", "--no-progress", "--current", URI]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["root"], report["messages_ended"]) == (URI, 1)
    assert report["position_after"] == report["history_after"] > report["position_before"] > 0
    assert bodies() == expected(last)
    current = DeltaTable(f"{URI}/current/queues").to_pyarrow_table()
    assert current["depth"].to_pylist() == [len(expected(last)) + 1]  # what expired was there
    with opened_root(URI, whole=True) as root:
        register(spark, root, ("queues",))
        (row,) = spark.sql("SELECT depth FROM queues WHERE queue = 'q'").collect()
        assert row.depth == len(expected(last))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    check_repairs(server, capsys, expected(last))
    check_replicates(tmp_path / "replica", capsys, expected(last))
