"""The working copy: a folder of this machine that says what the root in a bucket says.

Decision: a store on a bucket works on a copy of its tables. deltalake commits to the copy, and each
of those commits is published as it is: its data files, then its log entry, put if absent under the
same version number (`publisher`). So there is one way to recover, to read content and to commit,
that of a root on a disk. No request is spent on a read. The moment of truth is one conditional
put of bytes that are known before. The alternative, deltalake on `s3://`, has the same put inside,
but its outcome would have to be guessed from an error when the answer was lost, and every reader
would need a second implementation. What it costs: a disk that holds the tables, and their download
when a store starts on a machine that has no copy.

The copy is a cache, and never the truth: nothing of it is fsynced, and no start believes it. What a
store did not publish is thrown away with it. A store that ended well leaves the mark `published`;
only after that are data files kept for the next start, by their names, which are never used twice.
A copy of what the bucket had and has no more is not thrown away: that is refused (`seen_journal`).

Its `root.json` has the role `copy`, so that nobody serves the folder as if it were the root.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from sparkstore.bucket.seen_journal import SEEN_FILE, SET_ASIDE, check_not_behind, note_seen
from sparkstore.bucket.seen_journal import set_aside as _set_aside
from sparkstore.errors import CorruptData, InvalidRequest, Unavailable
from sparkstore.storage.data_paths import check_within
from sparkstore.storage.durable_files import fsync_with_folders, replace_durably
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents, version_gone
from sparkstore.tables.delta_files import log_folder, newest_version
from sparkstore.tables.fencing import COPY
from sparkstore.tables.marks import MARKS_FILE
from sparkstore.tables.root import (
    ROOT_FILE,
    Identity,
    Root,
    as_root_file,
    is_root,
    open_root,
    path_of,
    read_identity,
)
from sparkstore.user_cache import user_cache

_log = logging.getLogger(__name__)

_DOWNLOADS = 16
LOOKED_UP = ("state", "journal", "history")
"""In this order, as recovery reads them, because records move the other way."""
LOG_NAME = re.compile(r"(\d{20})\.(json|checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet)$")
"""What is fetched of a log: versions, and checkpoints of one file or of several."""
_PUBLISHED = "published"


def every_file(_name: str) -> bool:
    """Choose every data file of a table for a working copy."""
    return True


def folder_of(location: str, copy_dir: str) -> Path:
    """Return the folder of a root's working copy: the one that was named, or one in the cache."""
    if copy_dir:
        return path_of(copy_dir)
    return user_cache() / hashlib.sha256(location.encode()).hexdigest()[:16]


def copy_here(location: str, copy_dir: str = "") -> Root | None:
    """The working copy that a store of this machine made; None if there is none."""
    folder = folder_of(location, copy_dir)
    if not is_root(folder):
        return None
    root = open_root(folder)
    is_its = root.identity.role == COPY and root.identity.primary == location
    return root if is_its else None


def bring_up(
    bucket: Storage,
    identity: Identity,
    folder: Path,
    wants: Callable[[str], bool] = every_file,
    also: Iterable[str] = (),
) -> Root:
    """Bring a folder, which may hold an older copy, to what the bucket holds.

    Args:
        bucket: Where the root is.
        identity: The identity of the root.
        folder: The copy's; its lock is held.
        wants: True for a data file, by its name in the bucket, that is needed here.
        also: Tables that are made of the root's, and wanted here, too, if they are there.

    Raises:
        InvalidRequest: The folder holds something else, or what the bucket has no more; it stays
            as it is.
        CorruptData: A file is gone, or cannot be read.
        Unavailable: The bucket did not answer, or removed files while they were read: try again.
        OSError: No room here, most likely.
    """
    _check_may_be_copy(folder)
    check_not_behind(bucket, identity, folder)
    if not _is_of(folder, identity):
        _forget(folder)
    copy = replace(identity, role=COPY, primary=bucket.location, wal_dir="")
    replace_durably(folder / ROOT_FILE, as_root_file(copy))
    # The copy vouches for nothing while it changes; `keep` says so again at a good end.
    (folder / _PUBLISHED).unlink(missing_ok=True)
    (folder / MARKS_FILE).unlink(missing_ok=True)
    for table in (*LOOKED_UP, *also):
        bring_up_table(bucket, folder, table, wants)
        if table in LOOKED_UP and newest_version(folder / table) < 0:
            raise version_gone(bucket, table, 0)  # whoever makes a root makes all three
    root = Root(folder, copy)
    note_seen(root, newest_version(root.journal))
    return root


def bring_up_table(
    bucket: Storage, folder: Path, table: str, wants: Callable[[str], bool] = every_file
) -> None:
    """Bring up the working copy of one table.

    Raises:
        StoreError, OSError: As `bring_up`.
    """
    bring_up_log(bucket, folder, table)
    held = contents(LocalStorage(folder), table)
    names = (f"{table}/{unquote(path)}" for path in held.adds)
    named = {name: folder / name for name in names}
    missing = [name for name, file in named.items() if not file.exists() and wants(name)]
    download(bucket, folder, missing)
    remove_others(folder / table, {*named.values()})


def _check_may_be_copy(folder: Path) -> None:
    """Refuse a folder whose tables are not a copy's: they would be thrown away."""
    file = folder / ROOT_FILE
    if file.exists():
        is_copy = read_identity(file).role == COPY
    else:
        is_copy = not any((folder / table).exists() for table in LOOKED_UP)
    if not is_copy:
        message = f"{folder} holds a root, and no working copy: name another folder as copy_dir"
        raise InvalidRequest(message)


def _forget(folder: Path) -> None:
    """Remove a working copy; what else is in the folder (its lock, a write-ahead log) stays."""
    for table in LOOKED_UP:
        shutil.rmtree(folder / table, ignore_errors=True)
    for name in (ROOT_FILE, _PUBLISHED, MARKS_FILE, SEEN_FILE):
        (folder / name).unlink(missing_ok=True)


def set_aside(folder: Path) -> Path:
    """Keep a copy that has more than its bucket out of the way; return where it is."""
    return _set_aside(folder, (*LOOKED_UP, _PUBLISHED, MARKS_FILE, ROOT_FILE))


def keep(root: Root) -> None:
    """Let the next start use the data files of this copy, all of which the bucket has."""
    try:
        files = [path for path in root.path.rglob("*.parquet") if path.is_file()]
        files = [path for path in files if not path.is_relative_to(root.path / SET_ASIDE)]
        fsync_with_folders(files, up_to=root.path)
        replace_durably(root.path / _PUBLISHED, root.identity.root_id.encode())
    except OSError as reason:
        _log.warning("the working copy is not kept: %s", reason)


def _is_of(folder: Path, identity: Identity) -> bool:
    kept = LocalStorage(folder).read(_PUBLISHED)
    return kept is not None and kept.content.decode(errors="replace") == identity.root_id


def remove_others(table: Path, named: set[Path]) -> None:
    """Remove data files that the newest version does not name, as merges leave them."""
    for file in table.rglob("*.parquet"):
        if file not in named and file.parent != log_folder(table):
            file.unlink()


def bring_up_log(bucket: Storage, folder: Path, table: str) -> None:
    """Fetch the log from the newest whole checkpoint but one on; what was there before goes.

    Log files are fetched anew each time: a version that was not published has a name that another
    writer's may have.
    """
    log = log_folder(folder / table)
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    under = f"{table}/_delta_log"
    names = [file.name.removeprefix(f"{under}/") for file in bucket.files(under)]
    base = log_base(names)
    matches = (LOG_NAME.fullmatch(name) for name in names)
    wanted = [f"{under}/{match[0]}" for match in matches if match and int(match[1]) >= base]
    try:
        download(bucket, folder, wanted)
    except CorruptData as reason:
        message = f"{bucket.location}/{table}: log files went while they were read: try again"
        raise Unavailable(message) from reason


def log_base(names: Iterable[str]) -> int:
    """Return the version of the newest whole checkpoint but one, 0 if there is none.

    Nobody needs what a log has before it.
    """
    parts: dict[int, list[int]] = {}
    for name in names:
        match = LOG_NAME.fullmatch(name)
        if match and match[2] != "json":
            parts.setdefault(int(match[1]), []).append(int(match[3] or 1))
    whole = sorted(version for version, counts in parts.items() if len(counts) == counts[0])
    return whole[-2:][0] if whole else 0


def download(bucket: Storage, folder: Path, names: Iterable[str]) -> None:
    """Fetch files into a copy, several at a time.

    Raises:
        CorruptData: A file is gone, or its name leads out of the copy.
        Unavailable: The bucket did not answer.
    """

    def fetch(name: str) -> None:
        try:
            bucket.download(name, check_within(folder, name))
        except FileNotFoundError as reason:
            message = f"{bucket.location}/{name} is gone, and its table names it: restore it"
            raise CorruptData(message) from reason

    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        for _ in pool.map(fetch, names):
            pass
