"""A store on a root in a bucket: what it acknowledged is there, whoever dies, waits or is late."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from sparkstore.bucket import epochs
from sparkstore.bucket.bucket_download import local_copy
from sparkstore.config import StoreConfig
from sparkstore.core.records import ids_reserved
from sparkstore.errors import CorruptData, Fenced, InvalidRequest, Locked, Unavailable
from sparkstore.log.start import open_log
from sparkstore.log.writer import Log
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.fencing import check_may_serve
from tests.support.objects.s3_server import DROP, Request, S3Server, once, served
from tests.support.roots.logs import (
    TIMEOUT_S,
    append,
    error_of,
    facts_in,
    flush,
    opened,
    until,
    write,
)

URI = "s3://lake/queues"
CONFIG = StoreConfig(
    commit_interval_ms=0, wal_file_bytes=1 << 20, max_wal_files=3, fence_check_s=3600
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


class Machine:
    """Settings of a store on one machine; its folders are its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_delta = replace(CONFIG, copy_dir=str(folder / "copy"))
        self.by_wal = replace(self.by_delta, ack="wal", wal_dir=str(folder / "wal"))


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "elsewhere")


def facts_of(log: Log) -> list[int]:
    return facts_in(log.root.path)


def die(log: Log) -> None:
    """End a store as a kill does: nothing is said in the bucket, no lock is held any more."""
    log.fail(Unavailable("killed"))
    log.close()


def test_a_new_root_is_served_closed_and_served_elsewhere(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    with opened(URI, here.by_delta) as log:
        write(log, 1, 3)
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2, 3]
        write(log, 4, 4)
    with opened(URI, here.by_delta) as log:
        assert facts_of(log) == [1, 2, 3, 4]


def test_what_was_acknowledged_is_there_after_a_kill_between_any_two_changes(
    server: S3Server, here: Machine, tmp_path: Path
) -> None:
    acknowledged: dict[int, int] = {}
    server.snapshots = []
    for start in range(2):  # the second finds a root
        with opened(URI, here.by_delta) as log:
            for number in range(5 * start + 1, 5 * start + 6):
                write(log, number, number)
                acknowledged[len(server.snapshots)] = number
    snapshots, server.snapshots = server.snapshots, None
    chosen = random.Random(18).sample(range(len(snapshots)), 5)
    for number in sorted({*chosen, 0, len(snapshots) - 1}):
        server.objects = dict(snapshots[number])
        machine = Machine(tmp_path / str(number))
        with opened(URI, machine.by_delta) as log:
            found = facts_of(log)
        least = max((n for at, n in acknowledged.items() if at <= number + 1), default=0)
        assert found == [*range(1, len(found) + 1)]
        assert len(found) >= least


def test_answers_that_are_lost_lose_and_double_nothing(server: S3Server, here: Machine) -> None:
    chance = random.Random(7)

    def lost(request: Request) -> int | None:
        return DROP if request.method == "PUT" and chance.random() < 0.2 else None

    with opened(URI, here.by_delta) as log:
        server.faults = [lost]
        write(log, 1, 12)
        server.faults = []
        assert facts_of(log) == [*range(1, 13)]
    versions = [key for key in server.objects if re.search(r"journal/_delta_log/\d+\.json", key)]
    assert len(versions) == 14  # empty, opened, and each once


def test_a_second_store_fences_the_first_at_its_next_commit(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    first = open_log(URI, here.by_delta).log
    write(first, 1, 2)
    with opened(URI, elsewhere.by_delta) as second:
        error = error_of(append(first, 3))
        assert isinstance(error, Fenced)
        assert "epoch 2" in str(error)
        first.close()
        write(second, 4, 4)
        assert facts_of(second) == [1, 2, 4]


def test_a_first_store_that_is_idle_sees_the_claim_and_stops(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    first = open_log(URI, replace(here.by_delta, fence_check_s=0.02)).log
    with opened(URI, elsewhere.by_delta):
        until(lambda: first.failure is not None)
    assert isinstance(first.failure, Fenced)
    first.close()


def test_a_commit_that_the_first_store_made_meanwhile_is_kept(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    first = open_log(URI, here.by_delta).log
    written = []

    def meanwhile(request: Request) -> None:
        if not written and "journal/segment=" in request.key:
            server.faults = []
            written.append(1)
            write(first, 1, 1)

    server.faults = [meanwhile]
    with opened(URI, elsewhere.by_delta) as second:
        assert facts_of(second) == [1]
        assert isinstance(error_of(append(first, 2)), Fenced)
        first.close()


def test_of_two_that_start_at_a_time_one_serves(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    others: list[Log] = []

    def meanwhile(request: Request) -> None:
        if "journal/segment=" in request.key:
            server.faults = []
            others.append(open_log(URI, elsewhere.by_delta).log)

    server.faults = [meanwhile]
    with pytest.raises(Fenced, match="another start was faster"):
        open_log(URI, here.by_delta)
    write(others[0], 1, 1)
    others[0].close()


def test_a_second_process_of_one_machine_is_refused(server: S3Server, here: Machine) -> None:
    with opened(URI, here.by_delta), pytest.raises(Locked, match="in use by another process"):
        open_log(URI, here.by_delta)


def test_a_write_ahead_log_has_what_the_bucket_lacks(server: S3Server, here: Machine) -> None:
    slow = replace(here.by_wal, commit_interval_ms=3_600_000)
    log = open_log(URI, slow).log
    write(log, 1, 1)
    flush(log)
    write(log, 2, 3)
    backlog = log.backlog
    assert backlog.unshipped_bytes > 0
    assert backlog.unshipped_age_s >= 0
    kept = here.folder / "kept"
    shutil.copytree(here.folder / "wal", kept)  # as a kill would leave it
    before = dict(server.objects)
    log.close()
    assert log.backlog.unshipped_bytes == 0
    server.objects = before
    shutil.rmtree(here.folder / "copy")  # it is of later, too
    with opened(URI, replace(here.by_wal, wal_dir=str(kept))) as log:
        assert facts_of(log) == [1, 2, 3]


def test_a_start_without_the_log_that_may_hold_more_is_refused_by_name(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    log = open_log(URI, here.by_wal).log
    write(log, 1, 1)
    flush(log)
    die(log)
    away = (here.folder / "wal").rename(here.folder / "away")  # no path of another machine
    for config in (elsewhere.by_delta, elsewhere.by_wal):
        with pytest.raises(InvalidRequest, match="may hold what was acknowledged") as refused:
            open_log(URI, config)
    assert f'lost_wal = "{epochs.wal_id_in(away)}"' in str(refused.value)
    away.rename(here.folder / "wal")
    # Here it is found, by its id, also by a store that keeps none.
    with opened(URI, here.by_delta) as log:
        assert facts_of(log) == [1]
    with opened(URI, elsewhere.by_delta):
        pass


def test_a_log_that_is_lost_can_be_given_up(
    server: S3Server, here: Machine, elsewhere: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(URI, replace(here.by_wal, commit_interval_ms=3_600_000)).log
    write(log, 1, 1)
    before = dict(server.objects)
    log.close()
    server.objects = before
    lost = epochs.wal_id_in(here.folder / "wal")
    shutil.rmtree(here.folder)
    with opened(URI, replace(elsewhere.by_delta, lost_wal=lost)) as log:
        assert facts_of(log) == []
    assert "is given up" in caplog.text


def test_ids_that_a_lost_log_reserved_are_given_to_nobody_else(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    """Members of the service have them still, and put messages by them at the next one."""
    log = open_log(URI, replace(here.by_wal, commit_interval_ms=3_600_000)).log
    before = dict(server.objects)
    reserved = Completion()
    log.append([ids_reserved(1, 9_000)], reserved.finish)
    reserved.complete(TIMEOUT_S)
    log.close()
    server.objects = before
    lost = epochs.wal_id_in(here.folder / "wal")
    shutil.rmtree(here.folder)
    free = []
    for config in (replace(elsewhere.by_delta, lost_wal=lost), elsewhere.by_delta):
        opened_again = open_log(URI, config)
        free.append(opened_again.state.next_message_id)
        opened_again.log.close()
    assert 9_000 < free[0] == free[1]


def test_after_a_log_that_ended_well_any_machine_may_start(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    with opened(URI, here.by_wal) as log:
        write(log, 1, 5)
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2, 3, 4, 5]


def test_while_the_bucket_does_not_answer_nothing_is_acknowledged_and_then_all_is(
    server: S3Server, here: Machine
) -> None:
    with opened(URI, here.by_delta) as log:
        server.faults = [lambda request: 403 if request.method == "PUT" else None]
        waiting = append(log, 1)
        until(lambda: log.metrics.delta_error)
        assert "may not put there" in log.metrics.delta_error
        server.faults = []
        waiting.complete(30)
        assert facts_of(log) == [1]


def test_checkpoints_are_published_and_merges_change_no_record(
    server: S3Server, here: Machine, elsewhere: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkstore.log.journal._CHECKPOINT_EVERY", 5)
    with opened(URI, replace(here.by_delta, segment_commits=4)) as log:
        write(log, 1, 22)
    checkpoints = [key for key in server.objects if ".checkpoint." in key]
    assert len(checkpoints) > 2
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [*range(1, 23)]
        write(log, 23, 23)


def test_a_copy_that_ended_well_is_used_again_and_any_other_is_not(
    server: S3Server, here: Machine
) -> None:
    def downloads() -> list[str]:
        found = [r.key for r in server.requests if r.method == "GET" and ".parquet" in r.key]
        server.requests.clear()
        return found

    with opened(URI, here.by_delta) as log:
        write(log, 1, 3)
    downloads()
    log = open_log(URI, here.by_delta).log
    assert downloads() == []
    die(log)
    for file in (here.folder / "copy" / "journal").rglob("*.parquet"):
        file.write_bytes(b"\0" * file.stat().st_size)  # as a power cut may leave it
    with opened(URI, here.by_delta) as log:
        assert len(downloads()) >= 3
        assert facts_of(log) == [1, 2, 3]


def test_a_working_copy_is_no_root(server: S3Server, here: Machine) -> None:
    with opened(URI, here.by_delta) as log:
        copy = log.root.path
    with pytest.raises(Fenced, match="is a working copy of s3://lake/queues: use that"):
        check_may_serve(copy)
    with pytest.raises(Fenced, match="working copy"):
        open_log(copy, StoreConfig())


@pytest.mark.parametrize(
    ("objects", "error", "said"),
    [
        ({"queues/notes.txt": b""}, InvalidRequest, "holds 'notes.txt': choose another prefix"),
        ({"queues/journal/part-1.parquet": b""}, CorruptData, "but no root.json"),
        ({"queues/root.json": b"{}"}, CorruptData, "cannot be read"),
    ],
)
def test_what_is_no_root_is_refused_by_name(
    server: S3Server, here: Machine, objects: dict[str, bytes], error: type[Exception], said: str
) -> None:
    server.objects = dict(objects)
    with pytest.raises(error, match=said):
        open_log(URI, here.by_delta)
    assert server.objects == objects


@pytest.mark.parametrize("table", ["journal", "history", "state"])
@pytest.mark.parametrize("versions", ["one", "two"])
def test_a_table_without_its_first_version_is_damage_with_the_name_of_the_file(
    server: S3Server, here: Machine, elsewhere: Machine, table: str, versions: str
) -> None:
    with opened(URI, here.by_delta) as log:
        write(log, 1, 1)
    log_of = f"queues/{table}/_delta_log"
    first = server.objects.pop(f"{log_of}/{0:020}.json")
    if versions == "two":
        server.objects.setdefault(f"{log_of}/{1:020}.json", first)

    def read_a_copy() -> None:
        with local_copy(URI, whole=True):
            pass

    for road in (lambda: open_log(URI, elsewhere.by_delta), read_a_copy):
        with pytest.raises(CorruptData, match=rf"{table}/_delta_log/{0:020}\.json is gone"):
            road()


def test_a_creation_that_was_cut_off_is_completed(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    server.faults = [once("PUT", r"queues/root\.json", 403)]
    with pytest.raises(InvalidRequest, match="may not put"):
        open_log(URI, here.by_delta)
    with opened(URI, elsewhere.by_delta) as log:
        write(log, 1, 1)


def test_a_store_that_is_not_conditional_is_refused(server: S3Server, here: Machine) -> None:
    server.ignores_conditions = True
    with pytest.raises(InvalidRequest, match="does not honour If-None-Match"):
        open_log(URI, here.by_delta)
    assert server.objects == {}


def test_old_claims_are_removed_and_the_newest_stay(server: S3Server) -> None:
    bucket = ObjectStorage(URI)
    for epoch in range(30):
        epochs.claim_after(bucket, epoch, None)
        epochs.close(bucket, epoch + 1)
    left = epochs.names(bucket)
    assert epochs.highest(left) == 30
    assert len(left) == 20


@pytest.mark.parametrize(
    ("method", "key", "act"),
    [
        ("PUT", "", "put"),
        ("GET", r"queues/$", "list"),
        ("POST", "^$", "delete"),
        ("GET", "", "read"),
    ],
)
def test_what_this_user_may_not_do_is_named(
    server: S3Server, here: Machine, method: str, key: str, act: str
) -> None:
    def refused(request: Request) -> int | None:
        return 403 if request.method == method and re.search(key, request.key) else None

    server.faults = [refused]
    with pytest.raises(InvalidRequest, match=f"these credentials may not {act} there"):
        open_log(URI, here.by_delta)


def test_a_bucket_that_is_not_there_is_named(server: S3Server, here: Machine) -> None:
    with pytest.raises(InvalidRequest, match="there is no such bucket: create it first"):
        open_log("s3://pond/queues", here.by_delta)


@pytest.mark.parametrize("uri", ["s3://lake/my#queues", "s3://lake/a/../b", "s3://lake"])
def test_a_uri_that_is_misread_is_refused(here: Machine, uri: str) -> None:
    with pytest.raises(InvalidRequest):
        open_log(uri, here.by_delta)


def test_the_order_of_a_listing_does_not_matter(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    server.lists_backwards = True
    with opened(URI, here.by_delta) as log:
        write(log, 1, 5)
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2, 3, 4, 5]
        assert log.root.identity.role == "copy"


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (400, "ExpiredToken"), (403, "RequestTimeTooSkewed")],
)
def test_credentials_that_expire_amid_a_load_hold_it_up_and_lose_nothing(
    server: S3Server, here: Machine, elsewhere: Machine, status: int, code: str
) -> None:
    server.error_code = code
    with opened(URI, here.by_delta) as log:
        write(log, 1, 2)
        server.faults = [lambda _: status]
        waiting = [append(log, fact) for fact in (3, 4, 5)]
        until(lambda: log.metrics.delta_error)
        server.faults = []
        for each in waiting:
            each.complete(30)
        write(log, 6, 6)
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2, 3, 4, 5, 6]


def test_clocks_that_are_an_hour_apart_decide_nothing(
    server: S3Server, here: Machine, elsewhere: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second store's clock is an hour late; the third one's an hour ahead."""
    now_s, now_ns = time.time, time.time_ns
    first = open_log(URI, here.by_delta).log
    write(first, 1, 2)
    for offset_s, machine, facts in ((-3600, elsewhere, [1, 2]), (3600, here, [1, 2, 3])):
        monkeypatch.setattr(time, "time", lambda by=offset_s: now_s() + by)
        monkeypatch.setattr(time, "time_ns", lambda by=offset_s: now_ns() + by * 10**9)
        if machine is here:
            first.close()
        with opened(URI, machine.by_delta) as log:
            assert facts_of(log) == facts
            assert machine is here or isinstance(error_of(append(first, 9)), Fenced)
            write(log, facts[-1] + 1, facts[-1] + 1)
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2, 3, 4]


def test_ten_thousand_objects_that_no_commit_names_change_nothing(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    """Claims of epochs are listed: they come on the last of eleven pages."""
    with opened(URI, here.by_delta) as log:
        write(log, 1, 2)
    claims = epochs.names(ObjectStorage(URI))
    assert claims
    server.objects |= {f"queues/epoch/00-left-{n:05}": b"" for n in range(10_000)}
    assert epochs.names(ObjectStorage(URI)) == claims
    with opened(URI, elsewhere.by_delta) as log:
        assert facts_of(log) == [1, 2]


def test_a_folder_that_is_a_root_is_no_working_copy_and_stays_as_it_is(
    server: S3Server, here: Machine, tmp_path: Path
) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
    config = replace(here.by_delta, copy_dir=str(tmp_path / "root"))
    with pytest.raises(InvalidRequest, match="name another folder as copy_dir"):
        open_log(URI, config)
    (tmp_path / "root" / "root.json").rename(tmp_path / "root.json")
    with pytest.raises(InvalidRequest, match="name another folder as copy_dir"):
        open_log(URI, config)
    (tmp_path / "root.json").rename(tmp_path / "root" / "root.json")
    assert facts_in(tmp_path / "root") == [1, 2, 3]


def test_what_an_earlier_epoch_left_in_a_log_folder_is_set_aside(
    server: S3Server, here: Machine, elsewhere: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(URI, replace(here.by_wal, commit_interval_ms=3_600_000)).log
    write(log, 1, 1)
    kept = here.folder / "kept"
    shutil.copytree(here.folder / "wal", kept)
    before = dict(server.objects)
    log.close()
    server.objects = before
    shutil.rmtree(here.folder / "wal")
    shutil.rmtree(here.folder / "copy")  # it is of later, too
    with opened(URI, replace(elsewhere.by_delta, lost_wal=epochs.wal_id_in(kept))) as log:
        write(log, 2, 2)
    with opened(URI, replace(here.by_wal, wal_dir=str(kept))) as log:
        write(log, 3, 3)
        assert facts_of(log) in ([2], [2, 3])
    assert "set" in caplog.text
    assert [*(kept / "set-aside").iterdir()]


def test_what_no_version_of_the_journal_names_leaves_the_bucket(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    """Merged files of this store, and what one that was killed had left behind."""

    def data_files() -> set[str]:
        return {key for key in server.objects if re.search(r"journal/segment=.*parquet", key)}

    first = open_log(URI, here.by_delta).log
    write(first, 1, 3)
    die(first)
    stray = "queues/journal/segment=2/part-stray.parquet"
    server.objects[stray] = b"uploaded, and killed before its commit"
    kept = data_files() - {stray}
    config = replace(elsewhere.by_delta, reader_grace_s=0, segment_records=4)
    with opened(URI, config) as log:
        until(lambda: stray not in server.objects)
        assert kept <= data_files()
        write(log, 4, 12)
        merged = data_files()
        until(lambda: not merged <= data_files())
        assert facts_of(log) == [*range(1, 13)]
    with opened(URI, replace(here.by_delta, copy_dir=str(here.folder / "new"))) as log:
        assert facts_of(log) == [*range(1, 13)]


def test_a_store_that_was_fenced_removes_nothing_of_its_successor(
    server: S3Server, here: Machine, elsewhere: Machine
) -> None:
    first = open_log(URI, replace(here.by_delta, reader_grace_s=0)).log
    write(first, 1, 2)
    with opened(URI, elsewhere.by_delta) as second:
        write(second, 3, 5)
        publisher = first._publisher
        assert publisher is not None
        before = {*server.objects}
        publisher.jobs._remove()  # it does not know yet that it is fenced
        assert {*server.objects} == before
        first.close()
        assert facts_of(second) == [1, 2, 3, 4, 5]
