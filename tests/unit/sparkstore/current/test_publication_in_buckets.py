"""The queues of a root in a bucket as plain tables there, for readers without this package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.job_lease import NAME as LEASE
from sparkstore.bucket.job_lease import JobLease
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.exit_codes import ExitCode
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects.s3_server import DROP, S3Server, once, served
from tests.support.stores.stores import done

URI = "s3://lake/queues"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


def fill(where: str | Path, *subjects: str, take: int = 0) -> None:
    """Put messages with these subjects on queue `q`; take so many off its head."""
    store = DeltaMessageStore(str(where), StoreConfig(commit_interval_ms=0))
    if not store.recover().queues:
        done(store.create, Queue("q"))
    for subject in subjects:
        done(store.enqueue, store.message(MessageHeader(subject=subject), b"x"), "q")
    for message_id in [*store.recover().entries["q"]][:take]:
        done(store.acquire, message_id, "q", "c")
        done(store.dequeue, message_id, "q", "c")
    store.close()


def subjects(uri: str = URI) -> list[Any]:
    found = DeltaTable(f"{uri}/current/queue_messages").to_pyarrow_table().sort_by("position")
    return found["subject"].to_pylist()


def row(uri: str = URI) -> dict[str, Any]:
    (found,) = DeltaTable(f"{uri}/current/queues").to_pyarrow_table().to_pylist()
    return dict(found)


def test_readers_of_a_bucket_find_the_queues_as_plain_tables(
    server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(URI, "one", "two")
    assert main(["current", "--json", URI]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["root"], told["messages"], told["rows_written"]) == (URI, 2, 2)
    assert (subjects(), row()["depth"], row()["queue"]) == (["one", "two"], 2, "q")
    fill(URI, "three", take=1)
    began = datetime.now(UTC)
    assert main(["current", "--json", URI]) == 0
    assert json.loads(capsys.readouterr().out)["blocks_written"] == 1
    assert (subjects(), row()["depth"]) == (["two", "three"], 2)
    assert began < row()["as_of"] < datetime.now(UTC)
    before = {key for key in server.objects if "/current/queue_messages/" in key}
    assert main(["current", "--json", URI]) == 0
    assert json.loads(capsys.readouterr().out)["blocks_written"] == 0
    assert {key for key in server.objects if "/current/queue_messages/" in key} == before


def test_a_run_that_is_killed_after_any_change_leaves_whole_tables(server: S3Server) -> None:
    fill(URI, "one")
    assert main(["current", URI]) == 0
    fill(URI, "two", take=1)
    server.snapshots = []
    assert main(["current", URI]) == 0
    snapshots, server.snapshots = server.snapshots, None
    seen = []
    for objects in snapshots:
        server.objects = dict(objects)
        seen.append((subjects(), row()["as_of_position"]))
        server.objects.pop(f"queues/{LEASE}", None)
        assert main(["current", URI]) == 0
        assert (subjects(), row()["depth"]) == (["two"], 1)
    assert [told for told, _ in seen] == sorted((told for told, _ in seen), key=["one"].__ne__)
    assert [position for _, position in seen] == sorted(position for _, position in seen)


def test_a_lost_answer_is_no_lost_commit(server: S3Server) -> None:
    fill(URI, "one")
    server.faults = [
        once("PUT", rf"current/{name}/_delta_log", DROP) for name in ("queues", "queue_messages")
    ]
    assert main(["current", URI]) == 0
    assert (subjects(), row()["depth"]) == (["one"], 1)


def test_a_replica_in_a_bucket_has_them_and_is_replicated_and_promoted_as_before(
    server: S3Server, tmp_path: Path
) -> None:
    fill(tmp_path / "root", "one")
    assert main(["replicate", str(tmp_path / "root"), URI]) == 0
    assert main(["current", URI]) == 0
    assert subjects() == ["one"]
    fill(tmp_path / "root", "two", take=1)
    assert main(["replicate", str(tmp_path / "root"), URI]) == 0
    assert subjects() == ["one"], "as of the last run"
    assert main(["current", URI]) == 0
    assert (subjects(), row()["depth"]) == (["two"], 1)
    assert main(["promote", URI]) == 0
    fill(URI, "three")
    assert main(["current", URI]) == 0
    assert subjects() == ["two", "three"]


def test_what_cannot_be_done_is_said_in_a_line_and_with_what_to_do(
    server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["current", "s3://lake/nothing"]) == 2
    assert "is not a sparkstore root" in capsys.readouterr().err
    fill(URI, "one")
    lease = JobLease(ObjectStorage(URI), "compact", lease_s=1.0)
    assert main(["current", URI]) == ExitCode.TRY_LATER
    assert "the job compact of" in capsys.readouterr().err
    lease.give_back()
    table = f"{URI}/current/queues"
    write_deltalake(table, pa.table({"queue": ["q"]}))
    assert main(["current", URI]) != 0
    said = capsys.readouterr().err
    assert f"{table} cannot be used, it has the columns of another version: delete" in said
    assert said.count("\n") == 1
    for key in [key for key in server.objects if "/current/queues/" in key]:
        del server.objects[key]
    assert main(["current", URI]) == 0
    assert (subjects(), row()["depth"]) == (["one"], 1)


def test_data_files_of_other_tables_that_wait_to_be_removed_stay_noted(server: S3Server) -> None:
    fill(URI, "one")
    note = json.dumps({"history/gone.parquet": 1.0}).encode()
    server.objects["queues/jobs/unnamed.json"] = note
    assert main(["current", URI]) == 0
    assert json.loads(server.objects["queues/jobs/unnamed.json"]) == json.loads(note)
