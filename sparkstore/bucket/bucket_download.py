"""Copy a bucket's tables to a folder of this machine: whole, or as much as a question needs.

State is looked up first and history last, as recovery does, because records move the other way; so
what is looked up fits together beside a replication that runs. A file is immutable, and stays for a
day after the last version that named it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from sparkstore.bucket.cluster_tables import BucketTables
from sparkstore.bucket.working_copy import download, remove_others
from sparkstore.errors import InvalidRequest
from sparkstore.recovery.recovery import read_state
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import (
    COPY,
    TableContents,
    commit,
    contents,
    largest,
    version_gone,
)
from sparkstore.tables.fencing import REPLICA, identity_at
from sparkstore.tables.root import ROOT_FILE, Identity, Root, as_root_file

_LOOKED_UP = ("state", "journal", "history")

Tables = Mapping[str, TableContents]


def identified(bucket: Storage) -> Identity:
    """Return the identity of the root in a bucket.

    Raises:
        InvalidRequest: There is none.
        CorruptData: Its `root.json` cannot be read, or is from a newer schema version.
    """
    identity = identity_at(bucket)
    if identity is None:
        message = f"{bucket.location} is not a sparkstore root: it has no {ROOT_FILE}"
        raise InvalidRequest(message)
    return identity


@contextmanager
def local_copy(uri: str, *, whole: bool, executors_at: str = "") -> Iterator[Root]:
    """A root in a temporary folder that says what the one in a bucket says now.

    Args:
        uri: Where the root is, as `s3://lake/queues`.
        whole: With every file. Else with what the fold of all records needs: `state`, and the
            records after it; then no content can be read.
        executors_at: The bucket as executors on other machines name it (`s3a://…`), where Spark is
            to read the tables then; empty: in the folder.

    Raises:
        InvalidRequest: There is no root; this user may not read it.
        CorruptData: A file is gone, or cannot be read.
        Unavailable: The bucket did not answer.
    """
    bucket = ObjectStorage(uri)
    identity = identified(bucket)
    with tempfile.TemporaryDirectory(prefix="sparkstore-bucket-") as name:
        folder = Path(name)
        bring = download_tables if whole and not executors_at else _download_tail
        tables = bring(bucket, folder, {})
        LocalStorage(folder).put_if_absent(ROOT_FILE, as_root_file(identity))
        remote = None
        if executors_at:
            versions = {name: table.version for name, table in tables.items()}
            remote = BucketTables(bucket, folder, executors_at, versions)
        yield Root(folder, identity, remote)


class BucketCopy:
    """A root in a folder of this process, brought again and again to what a bucket holds.

    Nobody says when a stream of Spark needs it no more: the folder goes with this object.

    Args:
        uri: Where the root is, as `s3://lake/queues`.
    """

    def __init__(self, uri: str) -> None:
        self._bucket = ObjectStorage(uri)
        self._tables: Tables = {}
        self.folder = Path(tempfile.mkdtemp(prefix="sparkstore-bucket-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def bring_up(self) -> None:
        """Bring what is new, and remove what no table names any more.

        Raises:
            InvalidRequest: There is no root; this user may not read it.
            CorruptData: A file is gone, or cannot be read.
            Unavailable: The bucket did not answer.
        """
        identity = identified(self._bucket)
        self._tables = download_tables(self._bucket, self.folder, self._tables)
        (self.folder / ROOT_FILE).write_bytes(as_root_file(identity))
        for name, table in self._tables.items():
            named = {self.folder / name / unquote(path) for path in table.adds}
            remove_others(self.folder / name, named)


def download_tables(bucket: Storage, folder: Path, before: Tables) -> dict[str, TableContents]:
    """Bring the tables below a folder to what the bucket holds; what that is.

    Args:
        bucket: Where the root is.
        folder: Where the tables come to be, each with one version.
        before: What the folder has already.

    Raises:
        InvalidRequest: It is a replica, and the first replication there did not end.
        CorruptData: A file is gone, or cannot be read.
    """
    tables = _looked_up(bucket)
    for name, table in tables.items():
        held = before[name].adds if name in before else {}
        _download(bucket, folder, name, [path for path in table.adds if path not in held])
        _write_version(folder, name, table)
    return tables


def _download_tail(bucket: Storage, folder: Path, _before: Tables) -> dict[str, TableContents]:
    tables = _looked_up(bucket)
    for name, table in tables.items():
        _write_version(folder, name, table)
    _download(bucket, folder, "state", tables["state"].adds)
    meta = read_state(Root(folder, Identity("")), parts=("meta",))
    position = max(meta["position"].to_pylist(), default=0)
    for name in ("journal", "history"):
        adds = tables[name].adds
        needed = [path for path, add in adds.items() if _may_be_after(add, position)]
        _download(bucket, folder, name, needed)
    return tables


def _may_be_after(add: Mapping[str, Any], position: int) -> bool:
    return "position" not in json.loads(add["stats"] or "{}").get("maxValues", {}) or (
        largest([add], "position") > position
    )


def _looked_up(bucket: Storage) -> dict[str, TableContents]:
    tables = {name: contents(bucket, name) for name in _LOOKED_UP}
    empty = next((name for name, table in tables.items() if table.version < 0), None)
    if empty is not None:
        if identified(bucket).role != REPLICA:  # whoever makes a root makes all three
            raise version_gone(bucket, empty, 0)
        message = f"{bucket.location} holds nothing yet: let sparkstore replicate end once"
        raise InvalidRequest(message)
    return tables


def _download(bucket: Storage, folder: Path, table: str, paths: Iterable[str]) -> None:
    download(bucket, folder, (f"{table}/{unquote(path)}" for path in paths))


def _write_version(folder: Path, table: str, newest: TableContents) -> None:
    """Write version 0 of a local table, which names all files of the bucket's."""
    log = folder / table / "_delta_log"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    source = TableContents(protocol=newest.protocol, metadata=newest.metadata)
    if table != "journal":  # the next writer of the journal begins another epoch
        source.transactions = newest.transactions
    info, now_ms = {COPY: uuid4().hex}, time.time_ns() // 1_000_000
    commit(LocalStorage(folder), table, TableContents(), newest.adds, source, info, now_ms=now_ms)
