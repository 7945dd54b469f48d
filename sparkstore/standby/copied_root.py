"""The folder of a standby that gets a copy of all tables: what was there is kept, and named.

In this order, each durable before the next:

1. `copying/` is made: from now on nothing here is a root, whatever else is there
2. all that was there is moved to `set-aside/NNNN-root/`, `root.json` first
3. the copy is made in `copying/`, and its tables are marked durable
4. the tables are moved to their place, then `root.json` is written, and `copying/` is removed

All of it under the jobs' lease: a job that is at work on a table that is moved would go on in the
copy, whose versions are others. A kill in the midst of it leaves `copying/`, with or without a
`root.json` beside it: with one the copy is whole, without one the next copy begins at step 2, so a
part of a copy is set aside, too.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sparkstore.errors import CorruptData, InvalidRequest, Locked, Unavailable
from sparkstore.storage.durable_files import fsync_path
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.marks import MARKS_FILE, mark_durable
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import ROOT_FILE, TABLES, Identity, Root, as_root_file, is_root

_log = logging.getLogger(__name__)

_COPYING, _SET_ASIDE = "copying", "set-aside"
_STAYS = {_COPYING, _SET_ASIDE, "writer.lock", "jobs.lock", "control.sock", "service.sock"}


def has_whole_root(path: Path) -> bool:
    """Tell whether a folder has a root that a standby may go on with; tidies up after a copy.

    Raises:
        InvalidRequest: The folder holds something else.
    """
    copying = path / _COPYING
    if is_root(path):
        shutil.rmtree(copying, ignore_errors=True)
        return True
    if path.is_dir() and not copying.is_dir():
        strangers = {child.name for child in path.iterdir()} - _STAYS
        if strangers:
            message = f"{path} is not a sparkstore root and not empty: it holds {min(strangers)!r}"
            raise InvalidRequest(message)
    return False


class JobAtWork(Unavailable):
    """Connect again, but not soon: a job is at work on the old root, and ends by itself."""


@contextmanager
def without_jobs(path: Path) -> Iterator[None]:
    """Keep jobs away from a folder during the body.

    Raises:
        JobAtWork: One is at work there; a later connection copies.
    """
    with ExitStack() as held:
        try:
            held.enter_context(jobs_lease(path))
        except Locked as reason:
            raise JobAtWork(f"no copy while a job works on the old root: {reason}") from reason
        yield


def begin_copy(path: Path) -> Path:
    """Set aside what a folder has, and return the empty folder of the copy (steps 1 and 2)."""
    copying = path / _COPYING
    private_folder(copying)
    fsync_path(path)
    had = sorted(child for child in path.iterdir() if child.name not in _STAYS)
    if had:
        aside = path / _SET_ASIDE
        private_folder(aside)
        target = aside / f"{len([*aside.iterdir()]):04d}-root"
        private_folder(target)
        for child in sorted(had, key=lambda child: child.name != ROOT_FILE):
            child.rename(target / child.name)
            fsync_path(path)
        fsync_path(target)
        fsync_path(aside)
        _log.warning("what %s held is not the primary's: set aside in %s", path, target)
    shutil.rmtree(copying)
    private_folder(copying)
    return copying


def end_copy(path: Path, identity: Identity) -> Root:
    """Make the copy the root of its folder (steps 3 and 4).

    Raises:
        CorruptData: It lacks a table.
    """
    copying = path / _COPYING
    for name in TABLES:
        if not (copying / name).is_dir():
            raise CorruptData(f"the primary sent no {name}: it is no sparkstore, or a broken one")
    mark_durable(Root(copying, identity), dict.fromkeys(TABLES, 0))
    for name in (*TABLES, MARKS_FILE):
        (copying / name).rename(path / name)
    fsync_path(path)
    LocalStorage(path).put_if_absent(ROOT_FILE, as_root_file(identity))
    shutil.rmtree(copying)
    return Root(path, identity)
