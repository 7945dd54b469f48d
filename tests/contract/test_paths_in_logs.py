"""Every road that follows the paths of a Delta log refuses one that leads out of its table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkstore.bucket.bucket_download import local_copy
from sparkstore.bucket.job_copy import job_copy
from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData
from sparkstore.log.start import open_log
from sparkstore.replication.backup import back_up, restore
from sparkstore.replication.bucket_copy import replicate_to_bucket
from sparkstore.replication.bucket_promote import promote_in_place, promote_into
from sparkstore.replication.bucket_replica import paired
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects.s3_server import S3Server, served
from tests.support.roots.logs import opened, write

URI, REPLICA = "s3://lake/queues", "s3://lake/far"
OUTSIDE = "../../../authorized_keys"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


def settings(tmp_path: Path) -> StoreConfig:
    return StoreConfig(commit_interval_ms=0, copy_dir=str(tmp_path / "a" / "b" / "copy"))


def with_stranger(entry: bytes, path: str) -> bytes:
    """A version that adds one more file, of a path that no table of ours has."""
    add = {"path": path, "partitionValues": {"segment": "1"}, "size": 4, "stats": "{}"}
    more = {"add": {**add, "modificationTime": 0, "dataChange": True}}
    return entry.rstrip(b"\n") + b"\n" + json.dumps(more).encode() + b"\n"


def plant(server: S3Server, prefix: str, path: str = OUTSIDE) -> None:
    """Let the newest version of a journal name a path, which is there in the bucket."""
    log = f"{prefix}/journal/_delta_log/"
    newest = max(key for key in server.objects if key.startswith(log) and key.endswith("json"))
    server.objects[newest] = with_stranger(server.objects[newest], path)
    server.objects["authorized_keys"] = server.objects[f"{prefix}/authorized_keys"] = b"evil"


def serve(_server: S3Server, tmp_path: Path) -> None:
    open_log(URI, settings(tmp_path / "other"))


def read_by_sql(_server: S3Server, _tmp_path: Path) -> None:
    with local_copy(URI, whole=True):
        pass


def read_the_tail(_server: S3Server, _tmp_path: Path) -> None:
    with local_copy(URI, whole=False):
        pass


def work(_server: S3Server, tmp_path: Path) -> None:
    with job_copy(ObjectStorage(URI), "compact", tmp_path / "a" / "b" / "jobs"):
        pass


def replicate(_server: S3Server, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")  # a machine that has seen nothing yet
    with paired(URI, ObjectStorage(REPLICA)) as pair:
        replicate_to_bucket(pair)


def promote_there(server: S3Server, _tmp_path: Path) -> None:
    plant(server, "far")
    promote_in_place(ObjectStorage(REPLICA))


def promote_here(server: S3Server, tmp_path: Path) -> None:
    plant(server, "far")
    promote_into(ObjectStorage(REPLICA), tmp_path / "a" / "b" / "new")


def restore_here(server: S3Server, tmp_path: Path) -> None:
    plant(server, "far")
    restore(REPLICA, tmp_path / "a" / "b" / "new")


ROADS: list[Callable[[S3Server, Path], None]] = [
    serve, read_by_sql, read_the_tail, work, replicate, promote_there, promote_here, restore_here,
]  # fmt: skip


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
@pytest.mark.parametrize("path", [OUTSIDE, "%2e%2e/%2e%2e/%2e%2e/authorized_keys"])
def test_a_path_out_of_its_table_is_refused_in_one_line_and_followed_nowhere(
    server: S3Server, tmp_path: Path, road: Callable[[S3Server, Path], None], path: str
) -> None:
    with opened(URI, settings(tmp_path)) as log:
        write(log, 1, 2)
    with paired(URI, ObjectStorage(REPLICA)) as pair:
        replicate_to_bucket(pair)
    plant(server, "queues", path)
    with pytest.raises(CorruptData) as refused:
        road(server, tmp_path)
    assert "is no data file within its table" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [*tmp_path.rglob("authorized_keys")] == []


def test_a_backup_in_a_folder_is_restored_without_what_a_link_leads_to(tmp_path: Path) -> None:
    root, backup = tmp_path / "root", tmp_path / "backup"
    with opened(root) as log:
        write(log, 1, 2)
    back_up(root, backup)
    (tmp_path / "secret").write_bytes(b"secret")
    data = next(path for path in (backup / "journal").rglob("*.parquet"))
    data.unlink()
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(CorruptData, match="leads out of its table"):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_key_of_a_bucket_with_steps_upwards_is_refused_and_becomes_no_file(
    server: S3Server, tmp_path: Path
) -> None:
    with opened(URI, settings(tmp_path)) as log:
        write(log, 1, 2)
    name = f"{'9':>020}.json"
    server.objects[f"queues/journal/_delta_log/../../../{name}"] = b"{}"
    with pytest.raises(CorruptData, match="holds an object of a key that is no path"):
        open_log(URI, settings(tmp_path))
    assert [*tmp_path.rglob(name)] == []
