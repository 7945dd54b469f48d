"""The tables of a root in a bucket, for a Spark whose executors are on other machines.

Executors read and write the data files where they are, in the bucket. A job that only reads
(`BucketTables`) names the version that the copy of the logs is of. What Spark must not do is to
commit there (ARCHITECTURE: Rule 2), so one that commits (`ClusterTables`) has a Delta log of its
own, private to one run:

    <prefix>/history/segment=…/…          data files, read and written by executors
    <prefix>/history/_delta_log/          the log: each version is one put if absent, by the driver
    <prefix>/jobs/logs/RUN/history/…      the log of one run; the same of `state`

Hadoop's view file system joins the two (`viewfs://job-RUN/history`): a table whose folder is the
real one and whose `_delta_log` is the run's. What Spark commits there is nothing yet. The driver
brings it into its copy of the logs (`fetch`), and the publisher puts it into the real log, as it
does with what was committed on a disk (`table_publisher`). Of the journal Spark has the real log:
no job commits to it.

Why a job that is killed anywhere, or paused for any time, loses nothing: the real log has whole
versions only, each naming data files that were there before. What a run had committed to its own
log and not published is forgotten with it, and done again by the next run, which begins with the
real one. Data files of it are named by nobody, and go as all others do (`job_copy`). Private logs
that killed runs left are removed by the next one, which has the lease. A run that is only paused
finds its log gone then, or the next version of the real one taken, and ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4

from sparkstore.bucket.working_copy import LOG_NAME, download
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents
from sparkstore.tables.delta_files import log_folder
from sparkstore.tables.root import TABLES

_log = logging.getLogger(__name__)

LOGS = "jobs/logs"
_COMMITTED = ("history", "state")
"""Tables that jobs commit to."""
_META = "state/part=meta/"
"""Data files that the driver itself reads: one row."""


class BucketTables:
    """Tables of a bucket that are only read, at the versions that a copy of their logs has."""

    def __init__(
        self, bucket: Storage, copy: Path, executors_at: str, versions: Mapping[str, int]
    ) -> None:
        """Look at nothing yet.

        Args:
            bucket: Where the root is.
            copy: The folder whose tables have the logs, and some data files.
            executors_at: The bucket as executors name it, as `s3a://lake/queues`.
            versions: That of each table in the bucket which the copy is of.
        """
        self._bucket, self._copy, self._at, self._versions = bucket, copy, executors_at, versions

    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's file systems that say where the bucket is."""
        return s3a_settings(os.environ)

    def location(self, table: str) -> str:
        """Return the URI by which Spark finds one of `TABLES`, as of its version."""
        return f"{self.data_folder(table)}@v{self._versions[table]}"

    def data_folder(self, table: str) -> str:
        """Return the folder in which executors find the data files of one of `TABLES`."""
        return f"{self._at}/{table}"

    def fetch(self, table: str) -> None:
        """Fetch nothing: nobody commits to these tables."""

    def lost_files(self, table: str) -> dict[str, str]:
        """Data files that the copy's log names and that are gone, or of another size, and why."""
        sizes = {file.name: file.size for file in self._bucket.files(table)}
        lost = {}
        for path, add in contents(LocalStorage(self._copy), table).adds.items():
            name, size = f"{table}/{unquote(path)}", sizes.get(f"{table}/{unquote(path)}")
            if size != add["size"]:
                has = "is gone" if size is None else f"has {size} bytes instead of {add['size']}"
                lost[unquote(path)] = f"{self._bucket.location}/{name} {has}"
        return lost


class PublicTables(BucketTables):
    """Tables of a bucket at their newest version, for views that are asked at any time."""

    def location(self, table: str) -> str:
        """Return the folder in which Spark finds one of `TABLES`."""
        return self.data_folder(table)


class ClusterTables(BucketTables):
    """Tables of a bucket to which one run of a job commits, on one thread."""

    def __init__(self, bucket: Storage, copy: Path, executors_at: str) -> None:
        """Give Spark logs of its own, which say what the copy's say; remove those of killed runs.

        Args:
            bucket: Where the root is; the jobs' lease is held.
            copy: The copy of its logs, just brought up.
            executors_at: The bucket as executors name it, as `s3a://lake/queues`.

        Raises:
            StoreError: The bucket did not answer.
        """
        super().__init__(bucket, copy, executors_at, {})
        self._run = uuid4().hex
        _remove(bucket, LOGS)
        for table in _COMMITTED:
            for file in log_folder(copy / table).iterdir():
                bucket.upload(f"{self._log_of(table)}/{file.name}", file)

    def hadoop_settings(self) -> dict[str, str]:
        """Return Hadoop's settings: where the bucket is, and the folders that one view joins."""
        link = f"fs.viewfs.mounttable.job-{self._run}.link./"
        tables = {f"{link}{table}": f"{self._at}/{table}" for table in TABLES}
        logs = {
            f"{link}{table}/_delta_log": f"{self._at}/{self._log_of(table)}" for table in _COMMITTED
        }
        return super().hadoop_settings() | tables | logs

    def location(self, table: str) -> str:
        """Return the URI by which Spark finds one of `TABLES` in the joined view."""
        return f"viewfs://job-{self._run}/{table}"

    def fetch(self, table: str) -> None:
        """Bring what Spark has committed since into the copy's log.

        Raises:
            StoreError: The bucket did not answer; another run has removed this one's log.
        """
        log, here = self._log_of(table), log_folder(self._copy / table)
        names = (file.name.removeprefix(f"{log}/") for file in self._bucket.files(log))
        for name in sorted(filter(LOG_NAME.fullmatch, names)):
            if not (here / name).exists():
                self._bucket.download(f"{log}/{name}", here / name)
        if table == "state":
            adds = contents(LocalStorage(self._copy), table).adds
            wanted = filter(is_read_by_driver, (f"{table}/{unquote(path)}" for path in adds))
            missing = [name for name in wanted if not (self._copy / name).exists()]
            download(self._bucket, self._copy, missing)

    def close(self) -> None:
        """Remove this run's logs; what stays because of an error the next run removes."""
        try:
            _remove(self._bucket, f"{LOGS}/{self._run}")
        except (StoreError, OSError) as reason:
            _log.warning("%s/%s was not removed: %s", self._bucket.location, LOGS, reason)

    def _log_of(self, table: str) -> str:
        return f"{LOGS}/{self._run}/{table}/_delta_log"


def is_read_by_driver(name: str) -> bool:
    """Tell whether a copy of the logs has this data file, too; `name` is that in the bucket."""
    return name.startswith(_META)


def s3a(uri: str) -> str:
    """Write a root's URI as Hadoop names it.

    Raises:
        InvalidRequest: It is in another kind of bucket, or its prefix would be misread.
    """
    scheme, _, place = uri.partition("://")
    if scheme != "s3":
        message = f"{uri}: executors of a cluster read s3:// only"
        raise InvalidRequest(f"{message}: give spark-submit --master 'local[2]'")
    if quote(place) != place:
        message = f"{uri}: what joins its tables for executors reads spaces, % and such otherwise"
        raise InvalidRequest(f"{message}: give spark-submit --master 'local[2]'")
    return f"s3a://{place}"


def s3a_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the executors' settings of the bucket's server, from those that `ObjectStorage` reads.

    Keys are not among them: Spark itself hands on those of the driver's environment.
    """
    settings = {}
    endpoint = environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT")
    if endpoint:
        is_virtual = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower()
        is_path = is_virtual not in {"true", "1"}
        settings = {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": str(is_path).lower(),
        }
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        settings["fs.s3a.endpoint.region"] = region
    return settings


def _remove(bucket: Storage, under: str) -> None:
    for file in [*bucket.files(under)]:
        bucket.delete(file.name)
