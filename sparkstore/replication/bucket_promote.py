"""Make what a replica in a bucket holds the primary: in a folder of this machine, or where it is.

Into a folder, in this order:

1. copy the replica to a folder beside the one that is asked for, and recover it there, to see that
   it is whole
2. replace its `root.json`, if unchanged, by one that names the new primary, of the next generation
3. take the next version of each of its tables by an empty commit
4. give the copy its `root.json` and its name

Whatever is killed before the second step has changed nothing in the bucket. After it the old
primary is fenced, and promoting again goes on.

Why the old primary's last replication cannot add to the bucket what the new primary has not got: a
run of it that began before `root.json` was replaced commits after the versions that it saw at its
begin, and those commits now fail. One that was faster than the empty commits is seen by them: the
copy is made again. So what is copied last is what the bucket holds from then on, until the new
primary replicates to it.

Where it is, the copy is only looked at, and the last step is another one: once the versions are
taken, the bucket's `root.json` gets the role `primary`. Before that no store serves it, so what a
late replication of the old primary commits meanwhile fails, or is seen and copied again.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

from sparkstore.bucket.bucket_download import download_tables, identified
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.recovery.recovery import recover
from sparkstore.replication.old_primary import ask, check_not_behind, fence, old_primary
from sparkstore.replication.primary import Primary
from sparkstore.replication.promote import Promotion, check_not_empty, promotion_of
from sparkstore.storage.durable_files import fsync_path
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import COPY, TableContents, commit
from sparkstore.tables.fencing import PRIMARY, REPLICA, change_stored_identity
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import (
    ROOT_FILE,
    TABLES,
    Identity,
    Root,
    as_root_file,
    is_root,
    path_of,
)

_log = logging.getLogger(__name__)

_ROUNDS = 5
BOUNDARIES = ("copied", "claimed", "versions taken")
"""Moments between what such a promotion makes durable."""


class _Wishes(NamedTuple):
    """The arguments of a promotion, as `promote_into` describes them."""

    primary: str | Path | None
    accept_loss: bool
    ask_witness: bool
    at: Failpoint


def promote_into(
    replica: Storage,
    folder: str | Path,
    *,
    primary: str | Path | None = None,
    accept_loss: bool = False,
    ask_witness: bool = True,
    at: Failpoint = no_failpoint,
) -> Promotion:
    """Copy a replica out of its bucket, as the primary from now on; serve the folder afterwards.

    Args:
        replica: Where the replica is.
        folder: The new primary's folder, absent or empty.
        primary: Where the old primary is now; None: where it was, and it does not matter if it is
            not there.
        accept_loss: Also if the old primary can be read and holds more than the replica.
        ask_witness: False if the witness is lost for good, and the old primary is stopped.
        at: Called at each of `BOUNDARIES`.

    Raises:
        InvalidRequest: Not a replica; one that holds nothing yet, or less than a primary that can
            be read; the folder is not empty.
        CorruptData: The replica is not whole; nothing was changed.
        Unavailable: The bucket did not answer, or others commit to it all the time.
        OSError: The folder cannot be written.
    """
    path, new_id = path_of(folder), uuid4().hex
    standing = _replica_at(replica)
    check_free(path)
    check_is_conditional(replica)
    with empty_scratch(path) as scratch:
        wishes = _Wishes(primary, accept_loss, ask_witness, at)
        done = _take_over(replica, scratch, standing, new_id, str(path), wishes)
        new = Identity(new_id, generation=done.generation, witness=done.witness)
        become_root(scratch, path, replace(new, replicas=[replica.location]))
    return done


def promote_in_place(
    replica: Storage,
    *,
    primary: str | Path | None = None,
    accept_loss: bool = False,
    ask_witness: bool = True,
    at: Failpoint = no_failpoint,
) -> Promotion:
    """Make a replica in a bucket the primary; serve its URI afterwards.

    For the arguments, and what it raises, see `promote_into`.
    """
    standing = _replica_at(replica)
    check_is_conditional(replica)
    with TemporaryDirectory(prefix="sparkstore-promote-") as name:
        wishes = _Wishes(primary, accept_loss, ask_witness, at)
        where = replica.location
        done = _take_over(replica, Path(name), standing, standing.root_id, where, wishes)
    # From now on it is fenced by epochs (`sparkstore.bucket`).
    change_stored_identity(replica, lambda _: {"role": PRIMARY, "primary_id": "", "witness": ""})
    _log.info("%s is the primary now, generation %d", where, done.generation)
    return done


def _take_over(
    replica: Storage, scratch: Path, before: Identity, new_id: str, where: str, wishes: _Wishes
) -> Promotion:
    """Fence the old primary, once a copy in `scratch` is known to be whole and may take over."""
    copied = download_tables(replica, scratch, {})
    last_position = recover(Root(scratch, before)).last_position
    check_not_empty(replica.location, last_position)
    old = old_primary(replica.location, before, wishes.primary)
    if old is not None and not wishes.accept_loss:
        check_not_behind(old, replica.location, last_position)
    wishes.at("copied")
    generation = _claim(replica, new_id, where, before, old).generation
    wishes.at("claimed")
    new = Identity(new_id, generation=generation)
    witness = ask(before, new, where, old) if wishes.ask_witness else ""
    _take_versions(replica, scratch, copied)
    wishes.at("versions taken")
    # Only now: with the next versions taken, no replication adds to what is recovered.
    recovered = recover(Root(scratch, before))
    is_fenced = old is not None and fence(old, where, required=wishes.primary is not None)
    return promotion_of(
        where, replace(new, witness=witness), recovered, old or before, old_fenced=is_fenced
    )


def _replica_at(replica: Storage) -> Identity:
    identity = identified(replica)
    if identity.role != REPLICA:
        message = f"{replica.location} is a {identity.role}, not a replica"
        raise InvalidRequest(message)
    return identity


@contextmanager
def empty_scratch(path: Path) -> Iterator[Path]:
    """Make an empty folder beside the new root for a time; what a kill left there is removed."""
    scratch = path.with_name(f".{path.name}.promoting")
    private_folder(path.parent)
    shutil.rmtree(scratch, ignore_errors=True)
    private_folder(scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_free(path: Path) -> None:
    """Refuse a place for a new root that is taken.

    Raises:
        InvalidRequest: A root is there, or other files.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "a sparkstore root" if is_root(path) else "not empty"
        message = f"{path} is {what}: name a folder that is absent or empty"
        raise InvalidRequest(message)


def _claim(
    replica: Storage, new_id: str, where: str, seen: Identity, old: Primary | None
) -> Identity:
    """Name the new primary in the replica's `root.json`; what that says now."""

    def claimed(identity: Identity) -> dict[str, Any]:
        if (identity.primary_id, identity.generation) != (seen.primary_id, seen.generation):
            message = f"{replica.location} was promoted into {identity.primary} meanwhile"
            raise InvalidRequest(message)
        least = old.identity.generation if old is not None else 0
        return {
            "generation": max(identity.generation, least) + 1,
            "primary_id": new_id,
            "primary": where,
            "superseded": [*identity.superseded, identity.primary_id],
        }

    return change_stored_identity(replica, claimed)


def _take_versions(replica: Storage, scratch: Path, copied: Mapping[str, TableContents]) -> None:
    """Take the next version of each table by an empty commit; copy again where one is taken.

    Raises:
        Unavailable: There is a newer one each time.
    """
    for _ in range(_ROUNDS):
        taken = [
            commit(replica, name, base, base.adds, base, {COPY: uuid4().hex}, now_ms=_now_ms())
            for name, base in copied.items()
        ]
        if all(taken):
            return
        copied = download_tables(replica, scratch, copied)
    message = f"{replica.location}: others commit to it all the time: run it again"
    raise Unavailable(message)


def become_root(scratch: Path, path: Path, identity: Identity) -> None:
    """Give the copy its `root.json` and its name, each durable before the next."""
    root = Root(scratch, identity)
    mark_durable(root, dict.fromkeys(TABLES, 0))
    disk = LocalStorage(scratch)
    disk.put_if_absent(ROOT_FILE, as_root_file(identity))
    scratch.replace(path)
    fsync_path(path.parent)
    _log.info("%s is the primary now, generation %d", path, identity.generation)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
