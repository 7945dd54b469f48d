"""Read what a version of a Delta table names from any storage, and commit the next version.

Only what this project's tables use is known: reader version 1 and writer version 2, checkpoints of
one file or of several parts. A version is created by one `put_if_absent` of its file, so of several
who commit after the same version one wins, on a disk and in a bucket alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkstore.errors import CorruptData, Unavailable
from sparkstore.storage.data_paths import data_path
from sparkstore.storage.storage import Storage

_LOG_NAME = re.compile(r"(\d{20})\.(?:(json)|checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet)$")
COPY = "sparkstore.copy"
"""Who made a commit of this module; so that it knows its own when the answer was lost."""
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "stats")
_REMOVE_FIELDS = ("path", "partitionValues", "size")


@dataclass(slots=True)
class TableContents:
    """A table as of one version.

    Attributes:
        version: The number of the version, -1 if there is no table.
        protocol: What a reader and a writer must know, as the log says it.
        metadata: Schema, partitions and properties, as the log says them.
        adds: The active files by path, as the log says them (percent-encoded).
        transactions: Version by application id.
        commit_info: What the last `commit` of this module says of itself; empty if a checkpoint
            has come since.
    """

    version: int = -1
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    adds: dict[str, dict[str, Any]] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    commit_info: dict[str, Any] = field(default_factory=dict)

    def apply(self, action: Mapping[str, Any], log: str) -> None:
        """Take one action of the log in, in the order of the log.

        Raises:
            CorruptData: It is none, or names a file outside of the table; `log` is where.
        """
        try:
            self._apply(action, log)
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            message = f"{log} is not a whole Delta version: {type(reason).__name__}: {reason}"
            raise CorruptData(message) from reason

    def _apply(self, action: Mapping[str, Any], log: str) -> None:
        if add := action.get("add"):
            data_path(add["path"], log)
            self.adds[add["path"]] = {name: add.get(name) for name in _ADD_FIELDS}
        elif remove := action.get("remove"):
            self.adds.pop(remove["path"], None)
        elif txn := action.get("txn"):
            self.transactions[txn["appId"]] = int(txn["version"])
        elif COPY in (info := action.get("commitInfo") or {}):
            self.commit_info = dict(info)
        self.protocol = action.get("protocol") or self.protocol
        self.metadata = action.get("metaData") or self.metadata


def contents(storage: Storage, table: str, version: int | None = None) -> TableContents:
    """The contents of a table at a version, the newest if none is named.

    Raises:
        CorruptData: A version is missing or cannot be read.
        Unavailable: Old versions went while they were read: try again.
    """
    log = f"{table}/_delta_log"
    versions, checkpoints = _log_names(storage, log)
    newest = max((*versions, *checkpoints), default=-1) if version is None else version
    table_contents = TableContents()
    base = max((number for number in checkpoints if number <= newest), default=-1)
    for name in checkpoints.get(base, ()):
        for action in _checkpoint_actions(_read(storage, name), name):
            table_contents.apply(action, f"{storage.location}/{name}")
    for number in range(base + 1, newest + 1):
        if number not in versions:
            raise version_gone(storage, table, number)
        for action in _actions(_read(storage, versions[number]), versions[number]):
            table_contents.apply(action, f"{storage.location}/{versions[number]}")
    table_contents.version = newest
    return table_contents


def version_gone(storage: Storage, table: str, version: int) -> CorruptData:
    """Return the error of a version that must be there, and is not."""
    name = f"{storage.location}/{version_name(table, version)}"
    return CorruptData(f"{name} is gone: restore it from a replica or a backup")


def commit(
    storage: Storage,
    table: str,
    base: TableContents,
    wanted: Mapping[str, Mapping[str, Any]],
    source: TableContents,
    info: Mapping[str, str],
    *,
    now_ms: int,
) -> bool:
    """Commit the version after `base`, whose active files are `wanted`; False: another was first.

    The files themselves must be in place, durably.

    Args:
        storage: Where the table is.
        table: Name of the table, as `journal`.
        base: What it holds.
        wanted: What it is to hold, by path.
        source: Whose schema a new table gets, and whose transactions are written down.
        info: More of `commitInfo`; under `COPY` an id that is this writer's alone.
        now_ms: Milliseconds since 1970.
    """
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now_ms, "operation": "WRITE", "engineInfo": "sparkstore"}}
    ]
    actions[0]["commitInfo"] |= info
    if base.version < 0:
        actions += [{"protocol": source.protocol}, {"metaData": source.metadata}]
    actions += (
        {"txn": {"appId": app, "version": version}}
        for app, version in source.transactions.items()
        if base.transactions.get(app) != version
    )
    actions += (
        {"remove": _removed(add, now_ms)} for path, add in base.adds.items() if path not in wanted
    )
    actions += (
        {"add": {**add, "dataChange": True}}
        for path, add in wanted.items()
        if path not in base.adds
    )
    content = "\n".join(json.dumps(action) for action in actions).encode()
    return storage.put_if_absent(version_name(table, base.version + 1), content)


def version_name(table: str, version: int) -> str:
    """Name of the file that is a version."""
    return f"{table}/_delta_log/{version:020d}.json"


def largest(adds: Iterable[Mapping[str, Any]], column: str) -> int:
    """The largest value of a column in some files, by their statistics; 0 if there is none."""
    stats = (json.loads(add["stats"]) for add in adds if add.get("stats"))
    return max((statistics.get("maxValues", {}).get(column, 0) for statistics in stats), default=0)


def _removed(add: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    kept = {name: add.get(name) for name in _REMOVE_FIELDS}
    return kept | {"deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True}


def _log_names(storage: Storage, log: str) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Names of versions, and of all parts of each checkpoint that is whole."""
    versions: dict[int, str] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for file in storage.files(log):
        match = _LOG_NAME.fullmatch(file.name.removeprefix(f"{log}/"))
        if match is None:
            continue
        if match[2]:
            versions[int(match[1])] = file.name
        else:
            parts.setdefault((int(match[1]), int(match[4] or 1)), []).append(file.name)
    whole = {number: names for (number, count), names in parts.items() if len(names) == count}
    return versions, whole


def _read(storage: Storage, name: str) -> bytes:
    stored = storage.read(name)
    if stored is None:
        message = f"{storage.location}/{name} went while the table was read: run it again"
        raise Unavailable(message)
    return stored.content


def _actions(content: bytes, name: str) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in content.splitlines() if line]
    except ValueError as reason:
        message = f"{name} is not a whole Delta version: {reason}"
        raise CorruptData(message) from reason


def _checkpoint_actions(content: bytes, name: str) -> list[dict[str, Any]]:
    try:
        return _decoded_checkpoint(content)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as reason:
        message = f"{name} is not a whole checkpoint: {(str(reason).splitlines() or [''])[0]}"
        raise CorruptData(message) from reason


def _decoded_checkpoint(content: bytes) -> list[dict[str, Any]]:
    file = pq.ParquetFile(pa.BufferReader(content))
    kinds = [
        name for name in ("protocol", "metaData", "txn", "add") if name in file.schema_arrow.names
    ]
    rows: list[dict[str, Any]] = file.read(columns=kinds).to_pylist()
    for row in rows:
        if add := row.get("add"):
            add["partitionValues"] = dict(add["partitionValues"])
        if metadata := row.get("metaData"):
            metadata["configuration"] = dict(metadata["configuration"] or ())
            metadata["format"]["options"] = dict(metadata["format"]["options"] or ())
        if protocol := row.get("protocol"):
            row["protocol"] = {name: kept for name, kept in protocol.items() if kept is not None}
    return rows
