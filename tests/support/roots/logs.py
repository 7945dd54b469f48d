"""Logs over real files and real Delta, read back by what counts (ARCHITECTURE: Rule 3)."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable

from broker_shim.completion import Completion
from sparkstore.config import StoreConfig
from sparkstore.core.records import Kind, Record, content_staged
from sparkstore.errors import CorruptData, StoreError
from sparkstore.log.start import open_log
from sparkstore.log.writer import Log
from sparkstore.tables import rows
from sparkstore.tables.delta_files import checkpoints, log_file, newest_version, read_version
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root, open_root

TIMEOUT_S = 30.0
CONFIG = StoreConfig(
    commit_interval_ms=20, wal_file_bytes=1 << 20, max_wal_files=3, reserve_bytes=1 << 20
)
"""Small files; a Delta commit every 20 ms."""
BY_HAND = replace(CONFIG, commit_interval_ms=3_600_000)
"""A Delta commit only for a flush or at the end."""
BY_DELTA = replace(CONFIG, ack="delta")


@contextmanager
def opened(where: str | Path, config: StoreConfig = CONFIG) -> Iterator[Log]:
    """An open log, closed at the end."""
    log = open_log(where, config).log
    try:
        yield log
    finally:
        log.close()


def fact(number: int, size: int = 0) -> Record:
    """A record that any fold takes, told from others by its number."""
    return content_staged(0, number, 0, b"%d" % number + b"." * size)


def append(log: Log, number: int, size: int = 0) -> Completion:
    """Append one fact; the completion fires once or raises."""
    completion = Completion()
    log.append([fact(number, size)], completion.finish)
    return completion


def write(log: Log, first: int, last: int, size: int = 0) -> None:
    """Append facts one after the other, each acknowledged before the next."""
    for number in range(first, last + 1):
        append(log, number, size).complete(TIMEOUT_S)


def flush(log: Log) -> None:
    """Wait until Delta has everything."""
    completion = Completion()
    log.flush(completion.finish)
    completion.complete(TIMEOUT_S)


def error_of(completion: Completion) -> StoreError | None:
    """What a completion came with."""
    try:
        completion.complete(TIMEOUT_S)
    except StoreError as error:
        return error
    return None


def facts_in(where: str | Path) -> list[int]:
    """Numbers of the facts that count in the journal, in order of position.

    Positions are checked to be gapless from 1, each there once; what is written in a fact, too.
    """
    table = DeltaTable(str(open_root(where).journal)).to_pyarrow_table()
    found = sorted(rows.to_records(table), key=lambda row: row[:2])
    openings = [(position, epoch) for position, epoch, r in found if r.kind is Kind.OPENED]
    counted = [
        (position, record)
        for position, epoch, record in found
        if not any(at <= position and other > epoch for at, other in openings)
    ]
    assert [position for position, _ in counted] == [*range(1, len(counted) + 1)]
    facts = [record for _, record in counted if record.kind is Kind.CONTENT]
    assert all((f.body or b"").rstrip(b".") == b"%d" % (f.message_id or 0) for f in facts)
    return [fact.message_id or 0 for fact in facts]


def epochs_in(where: str | Path) -> list[int]:
    """Epochs of the `opened` records, in order of position."""
    table = DeltaTable(str(open_root(where).journal)).to_pyarrow_table()
    found = sorted(rows.to_records(table), key=lambda row: row[0])
    return [epoch for _, epoch, record in found if record.kind is Kind.OPENED]


def until(is_true: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for what another thread does."""
    tick = threading.Event()
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        tick.wait(0.005)


def image_of(where: Path, copy: Path) -> Path:
    """What a process killed now leaves on disk. Only for a log whose commits wait (`BY_HAND`)."""
    return Path(shutil.copytree(where, copy, ignore=shutil.ignore_patterns("*.new", "*.sock")))


def unsynced_files(root: Root, table: str = "journal") -> list[Path]:
    """Files of a table that no mark covers: a power cut may leave any of them zeroed."""
    mark = read_marks(root).versions.get(table, -1)
    folder = root.table(table)
    found: list[Path] = []
    for version in range(mark + 1, newest_version(folder) + 1):
        found.append(log_file(folder, version))
        try:
            found += [folder / file.path for file in read_version(folder, version).adds]
        except CorruptData:
            continue
    found += [p for v, files in checkpoints(folder).items() if v > mark for p in files]
    last = folder / "_delta_log" / "_last_checkpoint"
    if last.is_file() and json.loads(last.read_bytes())["version"] > mark:
        found.append(last)
    return [path for path in found if path.is_file()]


def zero(path: Path) -> None:
    """What a power cut leaves of a file whose bytes were not synced."""
    path.write_bytes(bytes(path.stat().st_size))
