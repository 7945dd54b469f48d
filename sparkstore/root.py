"""A root: the folder that holds all tables of one virtual host, and who it is (`root.json`).

    <root>/root.json     root id, schema version, role, generation, replicas (DESIGN 7)
           durable.json  per table, the last version known to survive a power cut (DESIGN 6)
           writer.lock   flock of the one writer          jobs.lock   flock of the jobs' lease
           wal/          write-ahead log (elsewhere with `wal_dir`)
           journal/ history/ state/    Delta tables

All three tables are created empty by the creator of the root, before `root.json` makes it a root;
from then on each has one committing engine (Rule 2).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable

from sparkstore.durable_files import fsync_with_folders, replace_durably
from sparkstore.errors import CorruptData, InvalidRequest
from sparkstore.schema import ROW, SCHEMA_VERSION, STATE, TABLE_CONFIGURATION

TABLES: dict[str, tuple[pa.Schema, str]] = {
    "journal": (ROW, "segment"),
    "history": (ROW, "segment"),
    "state": (STATE, "part"),
}
"""Schema and partition column of each table."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What `root.json` says.

    Attributes:
        root_id: UUID, hexadecimal.
        schema_version: Of records and tables.
        role: `primary`, `replica` or `fenced`.
        generation: Raised by each promotion.
        replicas: Where its copies are.
    """

    root_id: str
    schema_version: int = SCHEMA_VERSION
    role: str = "primary"
    generation: int = 1
    replicas: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Root:
    """An existing root, on a file system."""

    path: Path
    identity: Identity

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


def path_of(where: str | Path) -> Path:
    """The folder of a root given as a path or as a `file://` URI.

    Raises:
        InvalidRequest: Another kind of URI.
    """
    text = str(where)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif "://" in text:
        message = f"{text}: only folders and file:// URIs can be a root in this version"
        raise InvalidRequest(message)
    return Path(text).absolute()


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
    return Root(path, _identity(file))


def open_or_create_root(where: str | Path) -> Root:
    """The root at a folder, created if the folder is absent or empty.

    Call it with the writer's lock held (`log.lock`), whose file does not count as content.

    Raises:
        InvalidRequest: The folder holds something else.
        CorruptData: As `open_root`.
    """
    path = path_of(where)
    if (path / "root.json").is_file():
        return open_root(path)
    strangers = {child.name for child in path.iterdir()} - _LEFT_BY_A_CREATION if path.is_dir() else set()
    if strangers:
        message = f"{path} is not a sparkstore root and not empty: it holds {min(strangers)!r}"
        raise InvalidRequest(message)
    return _create(path)


_LEFT_BY_A_CREATION = {"journal", "history", "state", "wal", "writer.lock", "jobs.lock", "root.json.new"}


def _create(path: Path) -> Root:
    path.mkdir(parents=True, exist_ok=True)
    for name, (schema, partition) in TABLES.items():
        DeltaTable.create(
            str(path / name),
            schema=schema,
            partition_by=[partition],
            configuration=dict(TABLE_CONFIGURATION),
            mode="ignore",
        )
        log = path / name / "_delta_log"
        fsync_with_folders([*log.glob("*.json")], up_to=path.parent)
    identity = Identity(uuid4().hex)
    replace_durably(path / "root.json", json.dumps(asdict(identity), indent=2).encode())
    return Root(path, identity)


def _identity(file: Path) -> Identity:
    try:
        content: dict[str, Any] = json.loads(file.read_bytes())
        version = int(content["schema_version"])
        known = {name: content[name] for name in Identity.__dataclass_fields__ if name in content}
        identity = Identity(**known)
    except (ValueError, KeyError, TypeError) as reason:
        message = f"{file} cannot be read ({reason!r}): restore it from a replica or a backup"
        raise CorruptData(message) from reason
    if version > SCHEMA_VERSION:
        message = (
            f"{file.parent} has schema version {version}, this sparkstore knows"
            f" {SCHEMA_VERSION}: install a newer sparkstore"
        )
        raise CorruptData(message)
    return identity
