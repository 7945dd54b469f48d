"""A job on a root in a bucket: it works on a copy, and its commits are published one by one.

Decision: Spark reads and writes a folder, as on a disk, and each of its commits is published as it
is, one put if absent (`table_publisher`), before the job goes on to the next. Open-source Delta's
log store for S3 checks and then puts unconditionally, so a driver that was paused between the two
would overwrite a commit. A log store of ours would be a second engine that commits to these tables,
and needs Hadoop's S3 client. What it costs: a disk that holds the tables, and their download when a
copy is new. Where executors are on other machines the copy holds the logs alone, and Spark reads
and writes data files in the bucket (`cluster_tables`); its commits are published in the same way.

Why a job that is killed, or paused for any time, loses nothing: what it did not publish goes with
its copy. Each commit in the bucket leaves a valid root, as on a disk. Of two jobs that began
with one version one publishes the next; the other is told so and stops, because what it computed
stands on what is gone.

Data files that no version names any more are removed in two steps, a day apart. A run notes those
that it finds in `jobs/unnamed.json`, and removes those that had been noted for a day when it began,
but only of a table to which it has committed since. Why no file is removed that a later version
names: whoever had uploaded it began with a version before that commit, so it can commit no more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from sparkstore.bucket import working_copy
from sparkstore.bucket.cluster_tables import ClusterTables, is_read_by_driver
from sparkstore.bucket.job_lease import JobLease
from sparkstore.bucket.table_publisher import TablePublisher
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents
from sparkstore.tables.delta_files import committed_at_s, log_file, newest_version, versions
from sparkstore.tables.fencing import PRIMARY, REPLICA, identity_at
from sparkstore.tables.lock import FileLock
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import Identity, Root

_log = logging.getLogger(__name__)

TABLES = ("history", "state")
"""What a compaction commits to, in the order in which records move."""
_UPLOADS = 4
_UNNAMED = "jobs/unnamed.json"
_READER_S = 24 * 3600.0
"""A query elsewhere may take so long; no clock of another machine needs to agree any better."""


class JobCopy:
    """A root in a bucket, for the time of one job.

    Attributes:
        root: The copy that the job works on.
        location: The URI, to tell people.
    """

    def __init__(
        self,
        bucket: Storage,
        root: Root,
        lease: JobLease,
        tables: Iterable[str] = TABLES,
        roles: Container[str] = (PRIMARY,),
        wants: Callable[[str], bool] = working_copy.every_file,
    ) -> None:
        """Take a copy that was just brought up; the rest as of `job_copy`."""
        self._bucket, self._lease, self._roles, self._wants = bucket, lease, roles, wants
        self.root, self.location = root, bucket.location
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")
        uploads = self._pool if root.remote is None else None
        self._tables = {name: TablePublisher(bucket, root, name, uploads) for name in tables}
        self._noted, now_s = _noted(bucket), time.time()
        self._may_go = {n for n, since_s in self._noted.items() if now_s - since_s >= _READER_S}
        self._began = {name: table.published for name, table in self._tables.items()}

    def publish(self, _boundary: str = "") -> None:
        """Publish what the job has committed since; called between any two of its commits.

        Raises:
            Fenced: The root was promoted elsewhere, or is no primary any more.
            Unavailable: Another job has the lease, or has committed; the bucket did not answer.
                Nothing is lost: run the job again.
        """
        for name, table in self._tables.items():
            if newest_version(self.root.table(name)) == table.published:
                continue
            self._lease.check()
            taken = table.publish()
            if taken is not None:
                check_may_work_on(self._bucket, self._roles)
                message = f"{self.location}: another job committed version {taken} of {name}"
                raise Unavailable(f"{message} meanwhile: run it again")

    def finish(self) -> int:
        """Publish the rest, keep the logs short, remove what nobody names; how many data files.

        Raises:
            StoreError: As `publish`; what is only upkeep is a warning.
        """
        self.publish()
        removed = 0
        try:
            for table in self._tables.values():
                table.publish_checkpoint()
            self._clean_logs()
            removed = self._remove_unnamed()
        except (StoreError, OSError) as reason:
            _log.warning("%s was not tidied: %s", self.location, reason)
        working_copy.keep(self.root)
        return removed

    def put_back(self) -> list[str]:
        """Upload data files that the bucket lost, or cut, and that the copy still has; their names.

        A name is used once, and what a copy kept it had from the bucket, or put there.

        Raises:
            StoreError: The bucket did not answer.
        """
        back = []
        for table in working_copy.LOOKED_UP:
            sizes = {file.name: file.size for file in self._bucket.files(table)}
            for path, add in contents(LocalStorage(self.root.path), table).adds.items():
                name = f"{table}/{unquote(path)}"
                here, size = self.root.path / name, int(add["size"])
                is_whole_here = here.exists() and here.stat().st_size == size
                if sizes.get(name) != size and is_whole_here:
                    self._bucket.upload(name, here)
                    back.append(name)
        return back

    def follow_journal(self) -> None:
        """Bring what the store has committed since into the copy.

        Raises:
            StoreError: The bucket did not answer, or removed files while they were read.
        """
        working_copy.bring_up_table(self._bucket, self.root.path, "journal", self._wants)

    def close(self) -> None:
        """Let go of threads."""
        self._pool.shutdown()

    def _clean_logs(self) -> None:
        """Remove log entries before a checkpoint that is older than any query."""
        for name, table in self._tables.items():
            oldest = min(versions(self.root.table(name)), default=0)
            if oldest and (
                time.time() - committed_at_s(log_file(self.root.table(name), oldest)) >= _READER_S
            ):
                table.clean_log(oldest)

    def _remove_unnamed(self) -> int:
        """Remove data files that no version names, as the module says.

        Returns how many were removed.
        """
        now_s, removed = time.time(), 0
        kept = {name: since_s for name, since_s in self._noted.items() if not self._is_ours(name)}
        for name, table in self._tables.items():
            adds = contents(LocalStorage(self.root.path), name).adds
            named = {f"{name}/{unquote(path)}" for path in adds}
            has_committed = table.published > self._began[name]
            for file in [*self._bucket.files(name)]:
                if file.name in named or "/_delta_log/" in file.name:
                    continue
                if has_committed and file.name in self._may_go:
                    self._bucket.delete(file.name)
                    removed += 1
                else:
                    kept[file.name] = self._noted.get(file.name, now_s)
        self._note(kept)
        return removed

    def _is_ours(self, file: str) -> bool:
        return any(file.startswith(f"{table}/") for table in self._tables)

    def _note(self, unnamed: Mapping[str, float]) -> None:
        content = json.dumps(unnamed).encode()
        stored = self._bucket.read(_UNNAMED)
        if stored is None:
            self._bucket.put_if_absent(_UNNAMED, content)
        elif stored.content != content:
            self._bucket.replace_if_unchanged(_UNNAMED, content, stored.tag)


def folder_of_jobs(location: str, copy_dir: str = "") -> Path:
    """Return the folder of the jobs' copy on this machine, beside that of a store."""
    folder = working_copy.folder_of(location, copy_dir)
    return folder.with_name(f"{folder.name}-jobs")


@contextmanager
def job_copy(
    bucket: Storage,
    job: str,
    folder: Path,
    executors_at: str = "",
    *,
    tables: Collection[str] = TABLES,
    roles: Container[str] = (PRIMARY,),
    mends: bool = False,
) -> Iterator[JobCopy]:
    """A copy of a root in a bucket for one job, under the jobs' lease.

    Args:
        bucket: Where the root is.
        job: Name of the job.
        folder: Where the copy is; what an earlier job left there is used.
        executors_at: The bucket as executors on other machines name it (`s3a://…`); empty: they are
            threads of this process, and see the copy.
        tables: What the job commits to, in the order in which that is published.
        roles: What the root may be.
        mends: Data files that the bucket lost do not end the job, which is to find them.

    Raises:
        InvalidRequest: No root is there; the store is not conditional; the folder is not a copy's.
        Locked: Another job is at work, there or in that folder.
        Fenced: It is a replica, or another root took over.
        StoreError: The bucket did not answer, or holds what cannot be read.
    """
    identity = check_may_work_on(bucket, roles)
    check_is_conditional(bucket)
    with ExitStack() as held:
        lease = JobLease(bucket, job)
        held.callback(lease.give_back)
        private_folder(folder)
        held.callback(FileLock(folder / "writer.lock", bucket.location).release)
        _log.info("%s: the jobs' copy is in %s", bucket.location, folder)
        wants = is_read_by_driver if executors_at else working_copy.every_file
        if mends:
            wants = partial(_is_there, bucket, {})
        also = [table for table in tables if table not in TABLES]
        root = working_copy.bring_up(bucket, identity, folder, wants, also)
        if executors_at:
            remote = ClusterTables(bucket, folder, executors_at)
            held.callback(remote.close)
            root = replace(root, remote=remote)
        copy = JobCopy(bucket, root, lease, tables, roles, wants)
        held.callback(copy.close)
        yield copy


def check_may_work_on(bucket: Storage, roles: Container[str] = (PRIMARY,)) -> Identity:
    """Return the identity of the root, if it has a role that lets a job commit to it.

    Raises:
        InvalidRequest: There is none.
        Fenced: It is a replica, or another root took over.
    """
    identity, where = identity_at(bucket), bucket.location
    if identity is None:
        message = f"{where} is not a sparkstore root: sparkstore serve makes one"
        raise InvalidRequest(message)
    if identity.role in roles:
        return identity
    if identity.role == REPLICA:
        message = f"{where} is a replica, which gets what its primary {identity.primary} compacts"
        raise Fenced(f"{message}: run the job there")
    message = f"{where} is {identity.role}: {identity.successor or 'another root'} took over"
    raise Fenced(message)


def _is_there(bucket: Storage, listed: dict[str, set[str]], name: str) -> bool:
    """True if a data file is in the bucket, which is listed after its name was read."""
    table = name.partition("/")[0]
    if name not in listed.get(table, ()):
        listed[table] = {file.name for file in bucket.files(table)}
    return name in listed[table]


def _noted(bucket: Storage) -> dict[str, float]:
    stored = bucket.read(_UNNAMED)
    try:
        return dict(json.loads(stored.content)) if stored is not None else {}
    except (ValueError, TypeError):
        return {}  # it is written anew, and a day later all goes on
