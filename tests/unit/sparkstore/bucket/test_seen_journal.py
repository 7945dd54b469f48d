"""A bucket that was put back from an older copy is noticed by every machine that has seen more."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkstore.bucket.job_copy import job_copy
from sparkstore.bucket.seen_journal import SEEN_FILE, seen_in
from sparkstore.config import StoreConfig
from sparkstore.errors import Fenced, InvalidRequest, Unavailable
from sparkstore.log.start import open_log
from sparkstore.log.writer import Log
from sparkstore.replication.bucket_replica import paired
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.root import open_root
from tests.support.objects.s3_server import S3Server, served
from tests.support.roots.logs import append, facts_in, flush, opened, until, write

URI = "s3://lake/queues"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


def settings(folder: Path, ack: str = "delta") -> StoreConfig:
    more = {"wal_dir": str(folder / "wal")} if ack == "wal" else {}
    return StoreConfig(
        ack=ack,
        copy_dir=str(folder / "copy"),
        commit_interval_ms=0,
        wal_file_bytes=1 << 20,
        max_wal_files=3,
        fence_check_s=3600,
        **more,
    )


def die(log: Log) -> None:
    """End a store as a kill does: nothing is said in the bucket, no lock is held any more."""
    log.fail(Unavailable("killed"))
    log.close()


def die_before_a_put(log: Log, number: int, server: S3Server) -> None:
    """End it so that its copy has a commit that the bucket has not."""
    server.faults = [lambda request: 403 if request.method == "PUT" else None]
    append(log, number)
    die(log)
    server.faults = []


def put_back(server: S3Server, config: StoreConfig) -> tuple[int, int]:
    """Serve three facts, and then three more that the bucket has not any more: both versions."""
    with opened(URI, config) as log:
        write(log, 1, 3)
    before, old = dict(server.objects), newest_version(server)
    log = open_log(URI, config).log
    write(log, 4, 6)
    flush(log)
    die(log)
    new, server.objects = newest_version(server), before
    return old, new


def newest_version(server: S3Server) -> int:
    return int(re.findall(r"\d+", newest_entry(server)[0])[0])


@pytest.mark.parametrize("ack", ["delta", "wal"])
def test_a_bucket_that_was_put_back_is_refused_with_both_versions(
    server: S3Server, tmp_path: Path, ack: str
) -> None:
    old, new = put_back(server, settings(tmp_path, ack))
    before = dict(server.objects)
    copied = sorted(path for path in (tmp_path / "copy").rglob("*"))
    with pytest.raises(InvalidRequest) as refused:
        open_log(URI, settings(tmp_path, ack))
    assert f"was put back: its journal ends with version {old}," in str(refused.value)
    assert f"acknowledged in {tmp_path}/copy, which has version {new}:" in str(refused.value)
    assert "--accept-loss" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert server.objects == before
    assert sorted(path for path in (tmp_path / "copy").rglob("*")) == copied


@pytest.mark.parametrize("ack", ["delta", "wal"])
def test_an_accepted_loss_goes_on_and_keeps_the_copy_with_all_records(
    server: S3Server, tmp_path: Path, ack: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(tmp_path, ack)
    _, new = put_back(server, config)
    log = open_log(URI, config, accept_loss=True).log
    assert facts_in(log.root.path) == [1, 2, 3]
    write(log, 7, 7)
    log.close()
    aside = tmp_path / "copy" / "set-aside" / f"0000-journal-{new}"
    assert str(aside) in caplog.text
    assert facts_in(aside) == [1, 2, 3, 4, 5, 6]
    assert open_root(aside).identity.role == "copy"
    with opened(URI, config) as log:  # and no word any more
        assert facts_in(log.root.path) == [1, 2, 3, 7]
    assert seen_in(tmp_path / "copy") is not None


def test_a_bucket_that_was_put_back_and_went_on_elsewhere_is_refused(
    server: S3Server, tmp_path: Path
) -> None:
    put_back(server, settings(tmp_path))
    with opened(URI, settings(tmp_path / "other")) as log:
        write(log, 11, 20)
    with pytest.raises(InvalidRequest, match=r"ends with version 15, and has another version 8"):
        open_log(URI, settings(tmp_path))


def test_a_prefix_that_was_emptied_or_made_anew_is_refused(
    server: S3Server, tmp_path: Path
) -> None:
    put_back(server, settings(tmp_path))
    server.objects = {}
    with pytest.raises(InvalidRequest, match=r"has no root any more, and lacks .* version 8"):
        open_log(URI, settings(tmp_path))
    assert server.objects == {}
    with opened(URI, settings(tmp_path / "other")):
        pass
    with pytest.raises(InvalidRequest, match=r"another root, with version 1 of its journal, than"):
        open_log(URI, settings(tmp_path))
    log = open_log(URI, settings(tmp_path), accept_loss=True).log
    assert facts_in(log.root.path) == []
    log.close()


def test_a_job_whose_copy_has_seen_more_is_refused_and_goes_on_without_that_copy(
    server: S3Server, tmp_path: Path
) -> None:
    with opened(URI, settings(tmp_path / "store")) as log:
        write(log, 1, 3)
    before = dict(server.objects)
    with opened(URI, settings(tmp_path / "store")) as log:
        write(log, 4, 6)
    folder = tmp_path / "jobs"
    with job_copy(ObjectStorage(URI), "compact", folder):
        pass
    server.objects = before
    with (
        pytest.raises(InvalidRequest, match=r"ends with version 4, .* version 8.*move that folder"),
        job_copy(ObjectStorage(URI), "compact", folder),
    ):
        pass
    folder.rename(tmp_path / "kept")
    with job_copy(ObjectStorage(URI), "compact", folder) as copy:
        assert facts_in(copy.root.path) == [1, 2, 3]


def test_a_replication_that_has_read_more_of_its_primary_is_refused(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with opened(URI, settings(tmp_path)) as log:
        write(log, 1, 3)
    before = dict(server.objects)
    with opened(URI, settings(tmp_path)) as log:
        write(log, 4, 6)
    replica = ObjectStorage("s3://lake/replica")
    with paired(URI, replica):
        pass
    server.objects = before
    with pytest.raises(InvalidRequest, match="was put back"), paired(URI, replica):
        pass


def test_a_store_whose_bucket_is_put_back_while_it_serves_stops(
    server: S3Server, tmp_path: Path
) -> None:
    with opened(URI, settings(tmp_path)) as log:
        write(log, 1, 1)
    before = dict(server.objects)
    log = open_log(URI, replace(settings(tmp_path), fence_check_s=0.02)).log
    write(log, 2, 2)
    for name in [name for name in server.objects if "/_delta_log/" in name]:
        if name not in before:
            del server.objects[name]
    until(lambda: log.failure is not None)
    assert isinstance(log.failure, Fenced)
    assert "was put back while it was served" in str(log.failure)
    log.close()


def test_a_copy_of_another_place_says_nothing(server: S3Server, tmp_path: Path) -> None:
    with opened("s3://lake/first", settings(tmp_path)) as log:
        write(log, 1, 3)
    with opened("s3://lake/second", settings(tmp_path)) as log:
        assert facts_in(log.root.path) == []


def test_a_copy_of_an_earlier_release_remembers_nothing_and_is_served(
    server: S3Server, tmp_path: Path
) -> None:
    put_back(server, settings(tmp_path))
    (tmp_path / "copy" / SEEN_FILE).unlink()
    with opened(URI, settings(tmp_path)) as log:
        assert facts_in(log.root.path) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_any_history_is_refused_if_and_only_if_the_machine_has_seen_what_is_gone(
    server: S3Server, tmp_path: Path, seed: int
) -> None:
    """Kills, kills between commit and put, take-overs and buckets that are put back.

    The oracle is the bucket itself: the last log entry that a machine was told of is there, or not.
    """
    dice = random.Random(seed)
    configs = [settings(tmp_path / name) for name in "ab"]
    seen: dict[int, tuple[str, bytes]] = {}
    kept = [dict(server.objects)]
    number = refused = 0
    for _ in range(14):
        machine = dice.randrange(2)
        if dice.random() < 0.3 and len(kept) > 1:
            server.objects = dict(dice.choice(kept))
        is_gone = machine in seen and server.objects.get(seen[machine][0]) != seen[machine][1]
        try:
            log = open_log(URI, configs[machine]).log
        except InvalidRequest:
            assert is_gone
            refused += 1
            log = open_log(URI, configs[machine], accept_loss=True).log
        else:
            assert not is_gone
        for _ in range(dice.randrange(3)):
            number += 1
            write(log, number, number)
            kept.append(dict(server.objects))
        seen[machine] = newest_entry(server)
        end = dice.randrange(3)
        if end == 0:
            log.close()
            seen[machine] = newest_entry(server)
        elif end == 1:
            die(log)
        else:  # a commit that is never put
            number += 1
            die_before_a_put(log, number, server)
        kept.append(dict(server.objects))
    assert refused


def newest_entry(server: S3Server) -> tuple[str, bytes]:
    name = max(key for key in server.objects if key.startswith("queues/journal/_delta_log/"))
    return name, server.objects[name]
