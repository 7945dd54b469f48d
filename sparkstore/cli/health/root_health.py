"""Look at a root for `sparkstore doctor`: its disk, its owner, its tables, its log.

All is read; only the time of an fsync is found by writing a small file beside the root's own, which
is removed again. A running store and its tables are left alone.
"""

from __future__ import annotations

import os
import pwd
import stat
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sparkstore.cli.health.diagnosis import Diagnosis, of_file_system, of_room, of_sync_time
from sparkstore.errors import StoreError

if TYPE_CHECKING:
    from sparkstore.config import StoreConfig
    from sparkstore.tables.root import Root

_SYNCS = 21
_BLOCK = bytes(4096)
_CLOCK_BACK_S = 5.0
_WITNESS_S = 5.0


def of_root(where: str, config: StoreConfig) -> Iterator[Diagnosis]:
    """Look at a root, or at the folder in which it is to be made.

    Raises:
        InvalidRequest: The name cannot be a root's.
    """
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root, path_of

    if is_object_uri(where):
        yield _bucket(where)
        return
    path = path_of(where)
    folder = next(place for place in (path, *path.parents) if place.is_dir())
    yield of_file_system(file_system_of(folder), str(folder))
    yield _sync_time(folder)
    yield _room(folder, config)
    if not (path / "root.json").is_file():
        yield _no_root(path)
        return
    yield from _access(path)
    try:
        root = open_root(path)
    except StoreError as reason:
        yield Diagnosis("root", "fail", "cannot be opened", str(reason))
        return
    yield _role(root)
    if root.identity.witness:
        yield _standby(root)
    if root.identity.wal_dir:
        log = Path(root.identity.wal_dir)
        yield of_file_system(file_system_of(log), str(log))._replace(name="file system of wal_dir")
    tables, *more = _tables(root)
    yield from (tables, *more)
    if tables.status == "ok":  # deltalake cannot open a table that is to be healed
        yield _log(root)
        yield _queues(root)


def _no_root(path: Path) -> Diagnosis:
    if not path.exists() or not any(path.iterdir()):
        return Diagnosis("root", "ok", "not there yet: sparkstore serve makes it")
    text = "name the folder of a root, or one that is empty"
    return Diagnosis("root", "fail", "no root is in this folder, but other files are", text)


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that a folder is on, as the kernel names it."""
    place, kind, longest = folder.resolve(), "unknown", 0
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, rest = line.partition(" - ")
        at = Path(mount.split()[4].replace("\\040", " "))
        if place.is_relative_to(at) and len(at.parts) >= longest:  # a later mount hides an earlier
            kind, longest = rest.split()[0], len(at.parts)
    return kind


def _sync_time(folder: Path) -> Diagnosis:
    path = folder / f"doctor-{uuid4().hex}"
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as reason:
        text = "run the doctor as the broker's user, who must be able to write there"
        return Diagnosis("fsync", "fail", f"{folder}: {reason.strerror}", text)
    try:
        times_ms = []
        for _ in range(_SYNCS):
            began = time.perf_counter()
            os.write(descriptor, _BLOCK)
            os.fdatasync(descriptor)
            times_ms.append((time.perf_counter() - began) * 1000)
    except OSError as reason:
        text = "the disk refuses writes: look at it, and at the kernel's log"
        return Diagnosis("fsync", "fail", f"{folder}: {reason.strerror}", text)
    finally:
        os.close(descriptor)
        path.unlink()
    return of_sync_time(statistics.median(times_ms))


def _room(folder: Path, config: StoreConfig) -> Diagnosis:
    from sparkstore.storage.disk_room import RoomLimits, disk_of

    disk = disk_of(folder)
    limits = RoomLimits(config.min_free_bytes, config.min_free_percent, config.reserve_bytes)
    return of_room(disk.free_bytes, disk.total_bytes, limits.least_free(disk.total_bytes))


def _access(path: Path) -> Iterator[Diagnosis]:
    """Look who may read the root, and whether all in it belongs to its owner."""
    status = path.stat()
    owner = _user(status.st_uid)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        text = f"others can read or change every message: chmod 700 {path}"
        yield Diagnosis("permissions", "warn", f"mode {mode:04o}", text)
    else:
        yield Diagnosis("permissions", "ok", f"mode {mode:04o}")
    strange = next(_of_others(path, status.st_uid), None)
    if strange is not None:
        text = f"it was made by a command of another user: chown -R {owner} {path}"
        yield Diagnosis("owner", "fail", f"{owner}, but {strange} is another's", text)
    elif os.geteuid() not in {0, status.st_uid}:
        text = f"the broker must run as {owner}, and so should this command"
        yield Diagnosis("owner", "warn", f"{owner}, not {_user(os.geteuid())}", text)
    else:
        yield Diagnosis("owner", "ok", owner)


def _of_others(path: Path, owner: int) -> Iterator[Path]:
    """Find what belongs to another user: in the root, its tables and their logs."""
    folders = [path, *(folder for folder in path.iterdir() if folder.is_dir())]
    folders += [folder / "_delta_log" for folder in folders if (folder / "_delta_log").is_dir()]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid != owner:
                    yield Path(entry.path)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _role(root: Root) -> Diagnosis:
    from sparkstore.tables.lock import is_held

    identity = root.identity
    state = "a store runs" if is_held(root.path / "writer.lock") else "no store is seen to run"
    state_text = f"{identity.role}, generation {identity.generation}; {state}"
    if identity.role == "primary":
        return Diagnosis("root", "ok", state_text)
    text = f"serve {identity.successor}" if identity.successor else "promote makes it a primary"
    is_copy = identity.role in {"replica", "standby"}
    return Diagnosis("root", "ok" if is_copy else "warn", state_text, text)


def _standby(root: Root) -> Diagnosis:
    """Look whether a standby could take over, at the witness."""
    from sparkstore.cli.health.diagnosis import of_standby
    from sparkstore.witness.place import witness_at
    from sparkstore.witness.turn import sight

    try:
        sighted = sight(witness_at(root.identity.witness, patience_s=_WITNESS_S))
    except (StoreError, OSError) as reason:
        text = "after its lease the primary pushes back: mount it, or bring it back"
        return Diagnosis("witness", "fail", str(reason), text)
    if sighted is None:
        text = "mount the folder, or restore the object: nobody can take over without it"
        return Diagnosis("witness", "fail", f"{root.identity.witness} has no object", text)
    return of_standby(sighted[0].in_step, is_paused=sighted[0].is_paused)


def _tables(root: Root) -> Iterator[Diagnosis]:
    """Look whether a table would be healed at the next start, and for commits of the future."""
    from sparkstore.tables import healing
    from sparkstore.tables.delta_files import committed_at_s, log_file, newest_version
    from sparkstore.tables.root import TABLES

    due = []
    for table in TABLES:
        try:
            broken = healing.check(root, table)
        except (StoreError, OSError) as reason:
            yield Diagnosis("tables", "fail", f"{table} is damaged", str(reason))
            return
        if broken is not None:
            due.append(f"{table} from version {broken} on")
    if due:
        text = "a power cut broke it; the next start sets it aside and brings it again"
        yield Diagnosis("tables", "warn", f"a heal is due: {', '.join(due)}", text)
        return
    yield Diagnosis("tables", "ok", "whole")
    journal = root.journal
    ahead_s = committed_at_s(log_file(journal, newest_version(journal))) - time.time()
    if ahead_s > _CLOCK_BACK_S:
        text = "set the clock right: ages and times to live go by it"
        ahead = f"the newest commit is {ahead_s:.0f} s in the future: the clock was set back"
        yield Diagnosis("times of commits", "warn", ahead, text)


def _log(root: Root) -> Diagnosis:
    from sparkstore.log.unreplayed_records import unreplayed

    try:
        records = unreplayed(root)
    except (StoreError, OSError) as reason:
        return Diagnosis("write-ahead log", "fail", "cannot be read", str(reason))
    if records is None:
        return Diagnosis("write-ahead log", "ok", "nothing waits in it")
    return Diagnosis("write-ahead log", "warn", str(records), "start the store: it replays them")


def _queues(root: Root) -> Diagnosis:
    """Look whether each queue could be defined as it is, and where dead letters go round."""
    from sparkstore.operations.policy_orders import faults_of
    from sparkstore.operations.root_at_rest import StateFacts
    from sparkstore.recovery.recovered_state import recovered_state

    try:
        facts = StateFacts(recovered_state(root))
    except (StoreError, OSError) as reason:
        return Diagnosis("queues", "fail", "cannot be read", str(reason))
    faults = faults_of(facts)
    if not faults:
        return Diagnosis("queues", "ok", f"{len(facts.queues)} are defined well")
    more = f"; {len(faults) - 1} more" if len(faults) > 1 else ""
    return Diagnosis("queues", "warn", f"{faults[0]}{more}", "see sparkstore queue alter")


def _bucket(where: str) -> Diagnosis:
    from sparkstore.storage.objects import ObjectStorage
    from sparkstore.storage.probe import check_is_conditional

    try:
        check_is_conditional(ObjectStorage(where))
    except StoreError as reason:
        return Diagnosis("bucket", "fail", where, str(reason))
    return Diagnosis("bucket", "ok", "puts if absent, replaces if unchanged, reads and deletes")
