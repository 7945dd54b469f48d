"""A root: the folder that holds all tables of one virtual host, and who it is (`root.json`).

    <root>/root.json     root id, schema version, role, generation, replicas
           durable.json  per table, the last version known to survive a power cut
           writer.lock   flock of the one writer          jobs.lock   flock of the jobs' lease
           wal/          write-ahead log (elsewhere with `wal_dir`)
           control.sock  where a running broker takes bulk operations (`control`)
           journal/ history/ state/    Delta tables
           job_runs/     what the jobs did, a log (`job_runs`); there once a job has run
           current/      the queues as two plain tables, if somebody asked for them (`current`)

All three tables are created empty by the creator of the root, before `root.json` makes it a root;
from then on each has one committing engine (ARCHITECTURE: Rule 2).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable

from sparkstore.errors import CorruptData, InvalidRequest, StoreError
from sparkstore.folder_name import check_is_folder_name
from sparkstore.storage.durable_files import fsync_with_folders
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.schema import ROW, SCHEMA_VERSION, STATE, table_configuration

ROOT_FILE = "root.json"
"""Who a root is; what makes a folder a root."""

TABLES: dict[str, tuple[pa.Schema, tuple[str, ...]]] = {
    "journal": (ROW, ("segment",)),
    "history": (ROW, ("segment",)),
    "state": (STATE, ("part", "block")),
}
"""Schema and partition columns of each table."""


IDS_OF_A_GENERATION = 1 << 40
"""Enough for 127 days of 100,000 new messages a second; there are 8 million such ranges. A
generation that uses up its own goes on in that of the next."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of `root.json`: which root this is, and whether it may be written.

    Attributes:
        root_id: A UUID drawn when the root was created, in hexadecimal.
        schema_version: Version of the records and tables; newer ones are not opened.
        role: `primary`, `replica` or `fenced`.
        generation: Number that each promotion raises, from 1: the larger one is the newer primary.
        replicas: Paths of the folders, or URIs of the prefixes, that hold its copies.
        primary_id: Root id of the root that it is, or was, a copy of; empty: of none.
        primary: Where that root was when the copy was made.
        successor: Where the replica is that took over from a fenced root.
        wal_dir: Where the newest write-ahead log is; empty: `wal` in the root.
        superseded: Root ids of the primaries that a replica in a bucket took over from.
        witness: Where the object is that says whether it or its primary serves; empty: nowhere.
    """

    root_id: str
    schema_version: int = SCHEMA_VERSION
    role: str = "primary"
    generation: int = 1
    replicas: list[str] = field(default_factory=list)
    primary_id: str = ""
    primary: str = ""
    successor: str = ""
    wal_dir: str = ""
    superseded: list[str] = field(default_factory=list)
    witness: str = ""

    @property
    def first_message_id(self) -> int:
        """The least id of a message that this generation gives out.

        Each has a range of its own, since a replica that is promoted may lack the newest
        reservations: members of the store's service have those ids still, and use them.
        """
        return 1 + (self.generation - 1) * IDS_OF_A_GENERATION


class RemoteTables(Protocol):
    """The tables of a root of which this machine has no more than the logs."""

    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings that a session of Spark needs before it reads one of the tables."""
        ...

    def location(self, table: str) -> str:
        """Return the URI by which Spark finds one of `TABLES`, and commits to it if it may."""
        ...

    def data_folder(self, table: str) -> str:
        """Return the folder in which executors find the data files of one of `TABLES`."""
        ...

    def lost_files(self, table: str) -> dict[str, str]:
        """Data files that the log here names and that are not whole, and why."""
        ...

    def fetch(self, table: str) -> None:
        """Bring what Spark has committed since into the log that is here.

        Raises:
            StoreError: The storage did not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Root:
    """An existing root, on a file system.

    Attributes:
        path: The folder that holds `root.json`, the tables and their logs.
        identity: What `root.json` says.
        remote: Where the data files are, if the folder has no more than the logs of the tables.
    """

    path: Path
    identity: Identity
    remote: RemoteTables | None = None

    @property
    def journal(self) -> Path:
        """Delta table, committed only by the store (deltalake)."""
        return self.path / "journal"

    @property
    def history(self) -> Path:
        """Delta table, committed only by Spark jobs."""
        return self.path / "history"

    @property
    def state(self) -> Path:
        """Delta table, committed only by Spark jobs."""
        return self.path / "state"

    def table(self, name: str) -> Path:
        """Path of one of `TABLES`."""
        return self.path / name

    def spark_location(self, name: str) -> str:
        """Return the path or URI by which Spark finds one of `TABLES`."""
        return str(self.table(name)) if self.remote is None else self.remote.location(name)


def path_of(where: str | Path) -> Path:
    """The folder of a root given as a path or as a `file://` URI.

    Raises:
        InvalidRequest: No text or path; another kind of URI; a character that Delta's engines
            misread; a link to what is not there.
    """
    _check_is_path(where)
    text = str(where)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif "://" in text:
        message = f"{text}: only a folder or file:// URI can be the root here"
        raise InvalidRequest(message)
    path = Path(text).absolute()
    misread = sorted({*str(path)} & _MISREAD)
    if misread:
        message = f"{str(path)!r}: Delta's engines misread {misread[0]!r} in a path: choose another"
        raise InvalidRequest(f"{message} folder")
    if path.is_symlink() and not path.exists():
        message = f"{path} is a link to {path.readlink()}, which is not there: make that folder, or"
        raise InvalidRequest(f"{message} take the link away")
    return path


def _check_is_path(where: object) -> None:
    """Refuse a value that would become a folder of an odd name here."""
    if not isinstance(where, str | Path) or not str(where):
        kind = type(where).__name__ if where != "" else "empty"
        raise InvalidRequest(f"a root cannot be {kind}: give the path of its folder, or its URI")
    if "://" not in str(where):  # else it is told apart below
        check_is_folder_name(str(where), "")


_MISREAD = {*"%[]^|\\\x7f", *map(chr, range(32))}
"""Tried with deltalake 1.6.6: `%20` is decoded, `[` panics, as do `^` and `|`; a backslash becomes
a slash, a line break is refused."""


def open_root(where: str | Path) -> Root:
    """The root at a folder.

    Raises:
        InvalidRequest: There is no root there.
        CorruptData: `root.json` cannot be read, or is from a newer schema version.
    """
    path = path_of(where)
    file = path / "root.json"
    if not file.is_file():
        message = f"{path} is not a sparkstore root: it has no root.json"
        raise InvalidRequest(message)
    return Root(path, read_identity(file))


def open_or_create_root(where: str | Path, new: Identity | None = None) -> Root:
    """The root at a folder, created as a primary, or as `new`, if the folder is absent or empty.

    Call it with the writer's lock held (`tables.lock`), whose file does not count as content.

    Why a creation may be cut off anywhere: `root.json` comes last, so without it no record was ever
    taken. A version 0 that a power cut left zeroed is made anew, and nothing else is removed. A
    folder without one may be in another creator's hands, whose version appears at once. Tables
    with records and no `root.json` are a root that lost it: they are never touched. Of two who
    create one root on a shared folder, both take the tables of either, and the `root.json` of the
    first.

    Raises:
        InvalidRequest: The folder holds something else.
        CorruptData: As `open_root`; the folder holds records but no `root.json`.
    """
    path = path_of(where)
    check_may_be_root(path)
    if is_root(path):
        return open_root(path)
    for name in TABLES:
        version = path / name / "_delta_log" / f"{0:020}.json"
        if version.exists() and not _is_whole(version):
            version.unlink(missing_ok=True)
    return _create(path, new or Identity(uuid4().hex))


def check_may_be_root(path: Path) -> None:
    """Refuse a folder that is neither a root nor free to become one; read it, write nothing.

    Raises:
        InvalidRequest: It is a file, or holds something else.
        CorruptData: It holds records but no `root.json`.
    """
    if path.exists() and not is_root(path):
        try:
            _check_leftovers(path)
        except StoreError:
            if not is_root(path):  # else another opener has just created it
                raise


_LEFT_BY_A_CREATION = {*TABLES, "wal", "writer.lock", "jobs.lock", "root.json"}


def is_root(path: Path) -> bool:
    """True if a folder is a root, whatever its role."""
    return (path / "root.json").is_file()


def _check_leftovers(path: Path) -> None:
    """Refuse a folder that holds more than a creation that was cut off may leave."""
    if not path.is_dir():
        message = f"{path} is a file: a root is a folder"
        raise InvalidRequest(message)
    names = {child.name for child in path.iterdir()} - _LEFT_BY_A_CREATION
    strangers = {name for name in names if not name.startswith("root.json.")}
    if strangers:
        message = f"{path} is not a sparkstore root and not empty: it holds {min(strangers)!r}"
        raise InvalidRequest(message)
    for name in (*TABLES, "wal"):
        for file in (path / name).rglob("*"):
            if not file.is_dir() and not _is_of_an_empty_table(file.relative_to(path)):
                message = f"{path} holds {name} but no root.json: restore root.json from a backup"
                raise CorruptData(message)


def _is_whole(version: Path) -> bool:
    try:
        actions = [json.loads(line) for line in version.read_bytes().splitlines()]
    except (OSError, ValueError):
        return False
    return any("metaData" in action for action in actions)


def _is_of_an_empty_table(file: Path) -> bool:
    """True for version 0 of a table, or a scratch file or checksum of it (`….json.tmp#1`)."""
    return file.parts[1:-1] == ("_delta_log",) and f"{0:020}.json" in file.name


def _create(path: Path, identity: Identity) -> Root:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # see `private_folder`
    for name, (schema, partitions) in TABLES.items():
        DeltaTable.create(
            str(path / name),
            schema=schema,
            partition_by=list(partitions),
            configuration=table_configuration(name),
            mode="ignore",
        )
        log = path / name / "_delta_log"
        fsync_with_folders([*log.glob("*.json")], up_to=path.parent)
    # Whoever created it at the same time may be first.
    LocalStorage(path).put_if_absent(ROOT_FILE, as_root_file(identity))
    return open_root(path)


def as_root_file(identity: Identity) -> bytes:
    """Encode an identity as the content of a new `root.json`."""
    return json.dumps(asdict(identity), indent=2).encode()


def read_identity(file: Path) -> Identity:
    """Read the identity from a `root.json`.

    Raises:
        CorruptData: It cannot be read, or is from a newer schema version.
    """
    try:
        content = file.read_bytes()
    except OSError as reason:
        raise CorruptData(_UNREADABLE.format(file, repr(reason))) from reason
    return identity_in(content, str(file))


def identity_in(content: bytes, where: str) -> Identity:
    """Decode the content of a `root.json`; `where` it was is for the error.

    Raises:
        CorruptData: It cannot be read, or is from a newer schema version.
    """
    try:
        fields: dict[str, Any] = json.loads(content)
        version = int(fields["schema_version"])
        if version != SCHEMA_VERSION:
            raise CorruptData(_unknown(where, version))
        known = {name: fields[name] for name in Identity.__dataclass_fields__ if name in fields}
        return Identity(**known)
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptData(_UNREADABLE.format(where, repr(reason))) from reason


_UNREADABLE = "{} cannot be read ({}): restore it from a replica or a backup"


def _unknown(where: str, version: int) -> str:
    advice = "install a newer sparkstore" if version > SCHEMA_VERSION else "no release wrote that"
    known = f"this sparkstore knows {SCHEMA_VERSION}"
    return f"{where.removesuffix('/' + ROOT_FILE)} has schema version {version}, {known}: {advice}"
