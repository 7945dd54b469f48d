"""A replica in a bucket: what it holds after a copy, whatever was killed, lost or refused."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData, Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.recovery.recovery import recover
from sparkstore.replication import bucket_copy
from sparkstore.replication.bucket_promote import BOUNDARIES, promote_in_place, promote_into
from sparkstore.replication.promote import promote
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.delta_contents import contents
from sparkstore.tables.fencing import change_identity, check_may_serve, identity_at
from sparkstore.tables.root import TABLES, open_root
from tests.support.histories.history_builder import STEPS, HistoryBuilder
from tests.support.histories.strategies import Layers, build_history, fold_rows, layers
from tests.support.objects.copies import bodies_in, compact, copy, enqueue, trim
from tests.support.objects.s3_server import DROP, Fault, Request, S3Server, once, served
from tests.support.roots.replicas import files_below
from tests.support.roots.roots import build_root

URI = "s3://lake/queues"
BODIES = [b"one", b"two", b"three"]


_PUBLISH, _OPEN = STEPS.index(HistoryBuilder.publish), STEPS.index(HistoryBuilder.open)
FENCED = build_history([(_PUBLISH, 0, 0), (_OPEN, 1, 2)])
OPENED_AGAIN = max(row.position for row in FENCED.rows if row.record.kind is Kind.OPENED)


class _Stopped(Exception):
    pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.fixture
def bucket(server: S3Server) -> ObjectStorage:
    return ObjectStorage(URI)


@pytest.fixture
def primary(tmp_path: Path) -> Path:
    """A root with a few messages on `q`."""
    enqueue(tmp_path / "primary", *BODIES)
    return tmp_path / "primary"


def positions(bucket: ObjectStorage, table: str) -> list[int]:
    rows = DeltaTable(f"{bucket.location}/{table}").to_pyarrow_table(columns=["position"])
    return sorted(rows["position"].to_pylist())


def check_whole(bucket: ObjectStorage, folder: Path, bodies: list[bytes]) -> None:
    """What is in the bucket, promoted, serves these and nothing else."""
    promote_into(bucket, folder, accept_loss=True)
    assert bodies_in(folder) == bodies


def test_a_replica_has_every_record_once_and_any_engine_reads_it(
    primary: Path, bucket: ObjectStorage
) -> None:
    report = copy(primary, bucket)
    assert (report.position_before, report.lag_records, report.commit_count) == (0, 0, 3)
    assert positions(bucket, "journal") == [*range(1, report.position_after + 1)]
    assert positions(bucket, "history") == []
    assert copy(primary, bucket).commit_count == 0


def test_what_moves_in_the_primary_moves_in_the_replica(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    copy(primary, bucket)
    enqueue(primary, b"four")
    compact(primary)
    enqueue(primary, b"five")
    trim(primary)
    report = copy(primary, bucket)
    end = report.position_after
    history, journal = positions(bucket, "history"), positions(bucket, "journal")
    assert [*history, *journal] == [*range(1, end + 1)]
    enqueue(primary, b"six")
    compact(primary)
    copy(primary, bucket)
    assert positions(bucket, "journal") == []
    check_whole(bucket, tmp_path / "new", [*BODIES, b"four", b"five", b"six"])


def test_what_a_killed_run_left_the_next_one_completes(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path
) -> None:
    """Each request of a run, one after the other, is the last one that was answered."""
    copy(primary, bucket)
    compact(primary)
    enqueue(primary, b"four")
    requests = len(server.requests)
    number = 0
    while True:
        asked: list[Request] = []

        def dies(request: Request, asked: list[Request] = asked, last: int = number) -> int | None:
            asked.append(request)
            return 400 if len(asked) > last else None

        server.faults = [dies]
        try:
            copy(primary, bucket)
        except StoreError:
            number += 1
        else:
            break
        finally:
            server.faults = []
    assert number > 15
    assert len(server.requests) > requests
    copy(primary, bucket)
    check_whole(bucket, tmp_path / "new", [*BODIES, b"four"])


@pytest.mark.parametrize("answer", [DROP, 503, 409])
def test_a_lost_answer_is_no_lost_commit(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path, answer: int
) -> None:
    names = ("root.json", *(f"{table}/_delta_log/0*.json" for table in TABLES))
    server.faults = [once("PUT", name, answer) for name in names]
    if answer != 409:  # which only a conditional put is answered with
        server.faults.append(once("PUT", "parquet", answer))
    copy(primary, bucket)
    server.faults = [once("PUT", f"{table}/_delta_log/0*1.json", answer) for table in TABLES]
    compact(primary)
    enqueue(primary, b"four")
    assert copy(primary, bucket).commit_count == 3
    check_whole(bucket, tmp_path / "new", [*BODIES, b"four"])


def test_of_two_runs_at_a_time_one_fails_and_harms_nothing(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path
) -> None:
    copy(primary, bucket)
    enqueue(primary, b"four")

    def other_run(request: Request) -> None:
        if request.method == "PUT" and "/_delta_log/" in request.key:
            server.faults = []
            copy(primary, bucket)

    server.faults = [other_run]
    with pytest.raises(Unavailable, match="run it again"):
        copy(primary, bucket)
    assert positions(bucket, "journal") == [*range(1, copy(primary, bucket).position_after + 1)]


def test_a_run_that_was_paused_at_any_put_while_the_replica_was_promoted_adds_nothing(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path
) -> None:
    """Each put of a run, one after the other, is held back until the bucket was promoted."""
    held = 0
    while True:
        folder, source = tmp_path / f"new{held}", tmp_path / f"primary{held}"
        server.objects.clear()
        enqueue(source, *BODIES)
        copy(source, bucket)
        compact(source)
        enqueue(source, b"four")
        server.faults = [_promotion_at_put(server, held, source, folder)]
        try:
            copy(source, bucket)
        except Fenced:
            known = bodies_in(folder)
            assert known[: len(BODIES)] == BODIES
            end = copy(folder, bucket).position_after
            assert {*positions(bucket, "history"), *positions(bucket, "journal")} == {
                *range(1, end + 1)
            }
            held += 1
        else:
            break
        finally:
            server.faults = []
    assert held >= 4


def _promotion_at_put(server: S3Server, number: int, source: Path, folder: Path) -> Fault:
    """A fault that promotes the bucket, with the primary out of reach, before a put is served."""
    puts: list[Request] = []

    def promotes(request: Request) -> None:
        if request.method == "PUT" and "probe" not in request.key:
            puts.append(request)
            if len(puts) == number + 1:
                server.faults = []
                away = (source / "root.json").rename(source / "root.json.away")
                promote_into(ObjectStorage(URI), folder)
                away.rename(source / "root.json")

    return promotes


def test_a_promoted_replica_fences_the_old_primary_as_soon_as_that_can_read_the_bucket(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    copy(primary, bucket)
    away = primary.rename(tmp_path / "unplugged")
    done = promote_into(bucket, tmp_path / "new")
    assert (done.generation, done.messages, done.old_fenced) == (2, len(BODIES), False)
    for act in (lambda: check_may_serve(away), lambda: copy(away, bucket)):
        with pytest.raises(Fenced, match="promoted"):
            act()
    check_may_serve(tmp_path / "new")
    assert copy(tmp_path / "new", bucket).generation == 2


def test_a_bucket_that_does_not_answer_holds_nobody_up_and_is_told_once(
    primary: Path, bucket: ObjectStorage, server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    copy(primary, bucket)
    server.faults = [lambda _: 400]
    for _ in range(3):
        check_may_serve(primary)
    assert caplog.text.count("is not known") == 1
    server.faults = []
    check_may_serve(primary)
    server.faults = [lambda _: 400]
    check_may_serve(primary)
    assert caplog.text.count("is not known") == 2


def test_a_promotion_reaches_the_old_primary_and_refuses_to_lose_what_it_has(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    copy(primary, bucket)
    enqueue(primary, b"four")
    with pytest.raises(InvalidRequest, match="accept-loss"):
        promote_into(bucket, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert promote_into(bucket, tmp_path / "new", accept_loss=True).old_fenced
    assert open_root(primary).identity.successor == str(tmp_path / "new")


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_promotion_that_was_killed_is_made_again(
    primary: Path, bucket: ObjectStorage, tmp_path: Path, boundary: str
) -> None:
    copy(primary, bucket)

    def at(reached: str) -> None:
        if reached == boundary:
            raise _Stopped

    with pytest.raises(_Stopped):
        promote_into(bucket, tmp_path / "new", at=at)
    assert not (tmp_path / "new").exists()
    promote_into(bucket, tmp_path / "new")
    assert bodies_in(tmp_path / "new") == BODIES


def test_only_a_whole_replica_is_promoted_and_only_into_an_empty_folder(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="not a sparkstore root"):
        promote_into(bucket, tmp_path / "new")
    copy(primary, bucket)
    with pytest.raises(InvalidRequest, match="absent or empty"):
        promote_into(bucket, primary)
    [lost] = [key for key in server.objects if key.endswith(".parquet")]
    content = server.objects.pop(lost)
    with pytest.raises(CorruptData, match="gone"):
        promote_into(bucket, tmp_path / "new")
    assert [*tmp_path.iterdir()] == [primary]
    server.objects[lost] = content
    promote_into(bucket, tmp_path / "new")


def test_a_prefix_with_something_else_is_refused_and_left_as_it_is(
    primary: Path, bucket: ObjectStorage, server: S3Server
) -> None:
    server.objects["queues/notes.txt"] = b"mine"
    before = files_below(primary)
    with pytest.raises(InvalidRequest, match=r"holds 'notes.txt'"):
        copy(primary, bucket)
    assert server.objects == {"queues/notes.txt": b"mine"}
    assert files_below(primary) == before


def test_a_replica_of_another_primary_is_refused(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    copy(primary, bucket)
    enqueue(tmp_path / "other", b"x")
    with pytest.raises(InvalidRequest, match="another store's data"):
        copy(tmp_path / "other", bucket)
    assert open_root(tmp_path / "other").identity.replicas == []


def test_a_primary_that_lost_records_or_has_others_is_refused(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    backup = files_below(primary)
    enqueue(primary, b"four")
    copy(primary, bucket)

    def restore() -> None:
        for file in primary.rglob("*"):
            if file.is_file() and str(file) not in backup:
                file.unlink()
        for name, content in backup.items():
            Path(name).write_bytes(content)
        change_identity(open_root(primary), lambda _: {"replicas": [URI]})

    restore()
    with pytest.raises(CorruptData, match="the primary lost records"):
        copy(primary, bucket)
    enqueue(primary, b"other")
    with pytest.raises(CorruptData, match="the two went apart"):
        copy(primary, bucket)


def test_a_long_log_gets_checkpoints_and_is_read_from_them(
    primary: Path, bucket: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bucket_copy, "_UPKEEP_COMMITS", 2)
    for number in range(4):
        enqueue(primary, b"%d" % number)
        copy(primary, bucket)
    names = [file.name for file in bucket.files("journal/_delta_log")]
    assert any(re.search(r"checkpoint.*parquet", name) for name in names)
    assert contents(bucket, "journal").metadata["partitionColumns"] == ["segment"]
    check_whole(bucket, tmp_path / "new", [*BODIES, b"0", b"1", b"2", b"3"])


def test_the_commands_copy_and_promote(
    primary: Path, server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replicate", "--textfile", str(tmp_path), str(primary), URI]) == 0
    assert "files_copied" in capsys.readouterr().out
    assert [*tmp_path.glob("*.prom")]
    assert main(["promote", URI, "--into", str(tmp_path / "new")]) == 0
    assert bodies_in(tmp_path / "new") == BODIES
    assert main(["replicate", str(primary), URI]) == 3
    assert "took over" in capsys.readouterr().err


def test_the_commands_that_read_a_root_read_a_replica_in_a_bucket(
    primary: Path, bucket: ObjectStorage, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queues", URI]) == 2
    assert "not a sparkstore root" in capsys.readouterr().err
    copy(primary, bucket)
    compact(primary)
    enqueue(primary, b"four")
    copy(primary, bucket)
    server.requests.clear()
    assert main(["queues", "--json", URI]) == 0
    asked = [request.key for request in server.requests if request.key.endswith(".parquet")]
    assert not any("/history/" in key for key in asked)  # all of it is in `state`
    row = json.loads(capsys.readouterr().out)
    assert (row["queue"], row["depth"], row["not_durable"]) == ("q", len(BODIES) + 1, None)
    assert main(["browse", "--body", URI, "q"]) == 0
    shown = capsys.readouterr().out
    assert all(body.decode() in shown for body in (*BODIES, b"four"))
    assert main(["verify", "--deep", URI]) == 0
    server.objects.pop(next(key for key in server.objects if "/history/segment" in key))
    assert main(["verify", URI]) == 4
    assert "is gone" in capsys.readouterr().err


def test_a_replica_in_a_folder_is_promoted_where_it_is(primary: Path, tmp_path: Path) -> None:
    assert main(["promote", str(tmp_path), "--into", str(tmp_path / "new")]) == 2
    with pytest.raises(InvalidRequest):
        promote(URI)


def fenced(state_position: int) -> Layers:
    """A writer wrote on from the place of the `opened` that fences it."""
    return Layers(FENCED, state_position, state_position, 1, 1_000)


@settings(max_examples=3, deadline=None)
@given(layers(max_steps=30))
@example(fenced(state_position=0))
@example(fenced(state_position=OPENED_AGAIN))
def test_whatever_layer_a_record_is_in_it_comes_to_the_replica(drawn: Layers) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root, replica = build_root(folder / "root", drawn), LocalStorage(folder / "replica")
        if drawn.history.last_position == 0:
            return
        copy(root.path, replica)
        promote_into(replica, folder / "new", accept_loss=True)  # counts ghosts, too
        found = recover(open_root(folder / "new"))
    assert found.state == fold_rows(drawn.history.rows)
    assert found.last_position == drawn.history.last_position


def test_the_order_of_a_listing_does_not_matter(
    primary: Path, bucket: ObjectStorage, server: S3Server, tmp_path: Path
) -> None:
    server.lists_backwards = True
    for number in range(3):
        enqueue(primary, b"%d" % number)
        copy(primary, bucket)
    check_whole(bucket, tmp_path / "new", [*BODIES, b"0", b"1", b"2"])


def test_who_a_replica_is_stands_in_the_bucket(primary: Path, bucket: ObjectStorage) -> None:
    copy(primary, bucket)
    found = identity_at(bucket)
    assert found is not None
    assert (found.role, found.primary) == ("replica", str(primary))
    assert open_root(primary).identity.replicas == [URI]


@pytest.mark.parametrize("boundary", ["claimed", ""])
def test_a_replica_is_promoted_where_it_is_and_served_by_its_uri(
    primary: Path, bucket: ObjectStorage, tmp_path: Path, boundary: str
) -> None:
    copy(primary, bucket)

    def at(reached: str) -> None:
        if reached == boundary:
            raise _Stopped

    if boundary:
        with pytest.raises(_Stopped):
            promote_in_place(bucket, at=at)
    done = promote_in_place(bucket)
    assert (done.root, done.messages) == (URI, len(BODIES))
    with pytest.raises(Fenced, match="use that"):
        check_may_serve(primary)
    with pytest.raises(Fenced):
        copy(primary, bucket)
    store = DeltaMessageStore(URI, StoreConfig(copy_dir=str(tmp_path / "copy")))
    assert [store.load(number).body for number in store.recover().entries["q"]] == BODIES
    store.close()
    with pytest.raises(InvalidRequest, match="is a primary, not a replica"):
        promote_in_place(bucket)


def test_a_machine_that_is_lost_leaves_a_bucket_that_is_promoted_and_served(
    primary: Path, bucket: ObjectStorage, tmp_path: Path
) -> None:
    """The drill of docs/buckets.md, by its commands: nothing of the old machine is left."""
    assert main(["replicate", str(primary), URI]) == 0
    compact(primary)
    enqueue(primary, b"four")
    assert main(["replicate", str(primary), URI]) == 0
    enqueue(primary, b"not replicated")
    shutil.rmtree(primary)
    assert main(["promote", URI]) == 0
    store = DeltaMessageStore(URI, StoreConfig(copy_dir=str(tmp_path / "copy")))
    replicated = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    assert replicated == [*BODIES, b"four"]


def test_a_replication_that_was_paused_while_the_bucket_was_promoted_changes_nothing(
    primary: Path, bucket: ObjectStorage, server: S3Server
) -> None:
    copy(primary, bucket)
    enqueue(primary, b"late")
    before: list[dict[str, bytes]] = []

    def promoted_meanwhile(request: Request) -> None:
        if "_delta_log" in request.key and request.method == "PUT":
            server.faults = []
            promote_in_place(bucket, accept_loss=True)
            before.append(dict(server.objects))

    server.faults = [promoted_meanwhile]
    with pytest.raises((Fenced, Unavailable)):
        copy(primary, bucket)
    assert before
    logs = {key for key in server.objects if "_delta_log" in key}
    assert logs == {key for key in before[0] if "_delta_log" in key}
