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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.recovery.recovery import RecoveredRoot, recover
from sparkstore.replication.bucket_download import download_tables, identified
from sparkstore.replication.old_primary import OldPrimary, ask, old_primary
from sparkstore.replication.promote import Promotion, check_not_empty
from sparkstore.storage.durable_files import fsync_path
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage
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


def promote_into(
    uri: str,
    folder: str | Path,
    *,
    primary: str | Path | None = None,
    accept_loss: bool = False,
    ask_witness: bool = True,
    at: Failpoint = no_failpoint,
) -> Promotion:
    """Copy a replica out of its bucket, as the primary from now on; serve the folder afterwards.

    Args:
        uri: Where the replica is, as `s3://lake/queues`.
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
    replica, path = ObjectStorage(uri), path_of(folder)
    return promote_storage(
        replica, path, primary=primary, accept_loss=accept_loss, ask_witness=ask_witness, at=at
    )


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
        scratch = Path(name)
        copied = download_tables(replica, scratch, {})
        old = _checked(replica, scratch, standing, primary, accept_loss=accept_loss)
        at("copied")
        identity = _claim(replica, standing.root_id, replica.location, standing, old)
        at("claimed")
        witness = ask(standing, identity, replica.location, old) if ask_witness else ""
        _take_versions(replica, scratch, copied)
        at("versions taken")
        # Only now: with the next versions taken, no replication adds to what is recovered.
        recovered = recover(Root(scratch, standing))
        is_fenced = old is not None and old.fence(replica.location, required=primary is not None)
        # From now on it is fenced by epochs (`sparkstore.bucket`).
        changes = {"role": PRIMARY, "primary_id": "", "witness": ""}
        change_stored_identity(replica, lambda _: changes)
    _log.info("%s is the primary now, generation %d", replica.location, identity.generation)
    done = _promotion(replica.location, identity, recovered, old, standing, old_fenced=is_fenced)
    return replace(done, witness=witness)


def promote_storage(
    replica: Storage,
    path: Path,
    *,
    primary: str | Path | None = None,
    accept_loss: bool = False,
    ask_witness: bool = True,
    at: Failpoint = no_failpoint,
) -> Promotion:
    """Promote a replica in any storage, as `promote` does."""
    standing = _replica_at(replica)
    check_free(path)
    check_is_conditional(replica)
    scratch = empty_scratch(path)
    try:
        copied = download_tables(replica, scratch, {})
        old = _checked(replica, scratch, standing, primary, accept_loss=accept_loss)
        at("copied")
        now = _claim(replica, uuid4().hex, str(path), standing, old)
        identity = Identity(
            now.primary_id, role=PRIMARY, generation=now.generation, replicas=[replica.location]
        )
        at("claimed")
        witness = ask(standing, identity, path, old) if ask_witness else ""
        identity = replace(identity, witness=witness)
        _take_versions(replica, scratch, copied)
        at("versions taken")
        # Only now: with the next versions taken, no replication adds to what is recovered.
        recovered = recover(Root(scratch, standing))
        is_fenced = old is not None and old.fence(path, required=primary is not None)
        become_root(scratch, path, identity)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    done = _promotion(str(path), identity, recovered, old, standing, old_fenced=is_fenced)
    return replace(done, witness=witness)


def _checked(
    replica: Storage,
    scratch: Path,
    standing: Identity,
    primary: str | Path | None,
    *,
    accept_loss: bool,
) -> OldPrimary | None:
    """Check that the copy is whole and may take over.

    Returns the old primary, if it can be reached.
    """
    last_position = recover(Root(scratch, standing)).last_position
    check_not_empty(replica.location, last_position)
    old = old_primary(replica.location, standing, primary)
    if old is not None and not accept_loss:
        old.check_not_behind(replica.location, last_position)
    return old


def _promotion(
    root: str,
    now: Identity,
    recovered: RecoveredRoot,
    old: OldPrimary | None,
    before: Identity,
    *,
    old_fenced: bool,
) -> Promotion:
    return Promotion(
        root=root,
        generation=now.generation,
        last_position=recovered.last_position,
        queues=len(recovered.state.queues),
        messages=sum(len(queue.entries) for queue in recovered.state.queues.values()),
        old_primary=old.location if old is not None else before.primary,
        old_fenced=old_fenced,
    )


def _replica_at(replica: Storage) -> Identity:
    identity = identified(replica)
    if identity.role != REPLICA:
        message = f"{replica.location} is a {identity.role}, not a replica"
        raise InvalidRequest(message)
    return identity


def empty_scratch(path: Path) -> Path:
    """Make an empty folder beside the new root; files of a killed promotion are removed."""
    scratch = path.with_name(f".{path.name}.promoting")
    private_folder(path.parent)
    shutil.rmtree(scratch, ignore_errors=True)
    private_folder(scratch)
    return scratch


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
    replica: Storage, new_id: str, where: str, seen: Identity, old: OldPrimary | None
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
    """Commit nothing after each version that was copied; copy again where there is a newer one.

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
