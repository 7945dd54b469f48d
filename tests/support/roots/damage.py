"""What a power cut or a disk may do to the files of a table, and a little history to do it to."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from sparkstore.tables.delta_files import (
    newest_version,
    read_version,
)
from sparkstore.tables.root import TABLES, Root
from tests.support.histories.strategies import build_history, fold_rows
from tests.support.roots.roots import append_journal, rows_table, state_table

HISTORY = build_history([(step % 20, step, 3 * step) for step in range(20)])
ALL = [*TABLES]


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_at_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().rsplit(b"\n", 1)[0] + b"\n")


def lost(path: Path) -> None:
    path.unlink()


Damage = Callable[[Path], None]
DAMAGES: list[Damage] = [zeroed, cut_short, emptied, lost]


def append(root: Root, table: str) -> int:
    """One more version of a table, some row in it; its number."""
    if table == "journal":
        append_journal(root, [HISTORY.rows[-1]], 0, 77)
    elif table == "history":
        write_deltalake(str(root.history), rows_table(HISTORY.rows[-1:], 0), mode="append")
    else:
        write_deltalake(str(root.state), state_table(fold_rows(HISTORY.rows)), mode="append")
    return newest_version(root.table(table))


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rows(root: Root, table: str) -> int:
    """Rows of a table as Delta sees it."""
    count: int = DeltaTable(str(root.table(table))).to_pyarrow_table().num_rows
    return count


def data_file(root: Root, table: str, version: int) -> Path:
    (file,) = read_version(root.table(table), version).adds
    return root.table(table) / file.path


def one_data_file(root: Root, table: str) -> int:
    """One more version with a single data file."""
    last = append(root, table)
    while len(read_version(root.table(table), last).adds) != 1:
        write_deltalake(
            str(root.state),
            state_table(fold_rows(HISTORY.rows)).slice(0, 1),
            mode="append",
        )
        last = newest_version(root.table(table))
    return last


def read_rows(path: Path) -> int:
    count: int = pq.read_metadata(path).num_rows
    return count


def hadoop_sums(path: Path) -> Path:
    """The check sums that Spark would have written beside a file."""
    content = path.read_bytes()
    chunks = (content[start : start + 512] for start in range(0, len(content), 512))
    sums = path.with_name(f".{path.name}.crc")
    sums.write_bytes(
        b"crc\0\0\0\x02\0" + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    )
    return sums
