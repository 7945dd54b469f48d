"""Read Delta versions from their log files, without an engine, so that it works on a broken table.

    _delta_log/N.json              one version: adds, removes, txn, commitInfo     (20 digits)
               N.checkpoint.parquet, N.checkpoint.X.Y.parquet    all that is active at N
               N.crc               Spark's summary of N
               .FILE.crc           Hadoop's check sums of FILE, written by Spark beside every file
               _last_checkpoint    which checkpoint to start from

Neither engine's log format has a check sum that both write, so a log file that was cut at the end
of a line still parses. What gives it away is that it does not hold what its own commitInfo counts.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparkstore.errors import CorruptData
from sparkstore.storage.data_paths import data_path

_LOG_FILE = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.)")
_COUNTED = {
    "add": ("num_added_files", "numFilesAdded"),
    "remove": ("num_removed_files", "numFilesRemoved"),
}
"""What delta-rs calls the number of its add and remove actions (append and delete, optimize)."""
_CHECK_SUM_HEADER = b"crc\x00\x00\x00\x02\x00"
"""Of Hadoop's check sum files: name, and 512 bytes to each sum."""


class DataFile(NamedTuple):
    """A data file of a table: path below the table's folder, size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Version:
    """The actions of one version of a table.

    Attributes:
        version: The number of the version, from 0.
        adds: Data files that it brings.
        removes: Paths of data files that it no longer names.
        metadata: commitInfo entries that start with `sparkstore.`.
        transactions: Version by application id.
    """

    version: int
    adds: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)


def log_folder(table: Path) -> Path:
    """The folder of a table's log."""
    return table / "_delta_log"


def log_file(table: Path, version: int) -> Path:
    """The file that is a version."""
    return log_folder(table) / f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """Version that a file in `_delta_log` is about, its check sums included; None for others."""
    match = _LOG_FILE.match(name)
    return int(match[1]) if match else None


def versions(table: Path) -> list[int]:
    """Versions that have a log file, rising; broken or not."""
    names = (path.name for path in log_folder(table).glob("[0-9]*.json"))
    return sorted(v for v in map(version_of, names) if v is not None)


def newest_version(table: Path) -> int:
    """Largest version that has a log file, -1 if there is none; one listing, no file is read."""
    return max(versions(table), default=-1)


def log_files(table: Path, first: int, last: int) -> list[Path]:
    """Files in `_delta_log` about the versions `first` to `last`, check sums included."""
    numbered = [(version_of(path.name), path) for path in log_folder(table).iterdir()]
    return sorted(path for v, path in numbered if v is not None and first <= v <= last)


def checkpoints(table: Path) -> dict[int, list[Path]]:
    """Files of each checkpoint by version, rising."""
    files: dict[int, list[Path]] = {}
    for path in sorted(log_folder(table).glob("[0-9]*.checkpoint.*parquet")):
        version = version_of(path.name)
        if version is not None:
            files.setdefault(version, []).append(path)
    return files


def read_version(table: Path, version: int) -> Version:
    """Return the actions of one version of a table.

    Raises:
        CorruptData: The file is not there, not whole, or does not agree with its check sums.
    """
    path = log_file(table, version)
    try:
        content = path.read_bytes()
        actions = [_action(line) for line in content.split(b"\n") if line]
        read = _version(version, actions, str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
        message = f"{path} is not a whole Delta version: {type(reason).__name__}: {reason}"
        raise CorruptData(message) from reason
    if not check_sums_agree(path, content):
        message = f"{path} does not agree with its check sums"
        raise CorruptData(message)
    return read


def committed_at_s(entry: Path) -> float:
    """Return the time of a version's commit, in seconds since 1970; now if it has none."""
    for line in entry.read_bytes().splitlines():
        at_ms = json.loads(line).get("commitInfo", {}).get("timestamp")
        if at_ms is not None:
            return float(at_ms) / 1000
    return time.time()


def check_sums_agree(path: Path, content: bytes) -> bool:
    """False if Hadoop's check sums of a small file are there and whole, and say otherwise.

    Check sums that are themselves broken say nothing: Spark refuses such a file, so healing sets
    them aside (`broken_check_sums`).
    """
    sums = check_sum_file(path)
    if not sums.is_file() or broken_check_sums(path, len(content)):
        return True
    stored = sums.read_bytes()[len(_CHECK_SUM_HEADER) :]
    chunks = (content[start : start + 512] for start in range(0, len(content), 512))
    return stored == b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def check_sum_file(path: Path) -> Path:
    """Return the file in which Hadoop keeps the check sums of a file."""
    return path.with_name(f".{path.name}.crc")


def broken_check_sums(path: Path, size: int) -> bool:
    """True if Hadoop's check sums of a file of `size` bytes are there but zeroed or too short.

    Sums for more bytes than there are say that the file was cut, not they.
    """
    sums = check_sum_file(path)
    if not sums.is_file():
        return False
    content = sums.read_bytes()
    body = content[len(_CHECK_SUM_HEADER) :]
    return (
        not content.startswith(_CHECK_SUM_HEADER)
        or len(body) < 4 * -(-size // 512)
        or (bool(body) and not any(body))
    )


def _action(line: bytes) -> dict[str, Any]:
    action = json.loads(line.decode())
    if not isinstance(action, dict) or not action:
        message = f"{line[:40]!r} is not an action"
        raise ValueError(message)
    return action


def _version(version: int, actions: list[dict[str, Any]], log: str) -> Version:
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    txns = [action["txn"] for action in actions if "txn" in action]
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None)
    if info is None:
        raise ValueError("no commitInfo")
    _count(info, "add", len(adds))
    _count(info, "remove", len(removes))
    metadata = {
        key: value
        for key, value in info.items()
        if key.startswith("sparkstore.") and isinstance(value, str)
    }
    if "sparkstore.number" in metadata and not txns:
        raise ValueError("a commit of the journal without its txn")
    return Version(
        version,
        tuple(DataFile(data_path(add["path"], log), int(add["size"])) for add in adds),
        tuple(data_path(remove["path"], log) for remove in removes),
        metadata,
        {txn["appId"]: int(txn["version"]) for txn in txns},
    )


def _count(info: dict[str, Any], action: str, count: int) -> None:
    """Check a count that delta-rs wrote, which writes no check sums; Spark's mean other things."""
    is_delta_rs = str(info.get("engineInfo", "")).startswith("delta-rs")
    metrics = (info.get("operationMetrics") or {}) if is_delta_rs else {}
    for name in _COUNTED[action]:
        if name in metrics and int(metrics[name]) != count:
            message = f"{count} {action} actions where {name} is {metrics[name]}"
            raise ValueError(message)
