"""Check that a Parquet file is whole: its size, its magic, its footer and, if asked, every page.

`lost_files` asks that of all files that a table names.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sparkstore.storage.data_paths import data_path

_MAGIC = b"PAR1"
_BATCH_ROWS = 4096


def reason_broken(path: Path, size: int, *, deep: bool) -> str | None:
    """Return the reason why a Parquet file is not whole, in words for the log; None if it is.

    Args:
        path: The Parquet file to look at.
        size: Its length in bytes as the log has it.
        deep: Decode every page too: a power cut can zero the middle of a file.
    """
    try:
        actual = path.stat().st_size
        if actual != size:
            return f"{path} has {actual} bytes instead of {size}"
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return f"{path} does not start as a Parquet file"
        with pq.ParquetFile(path) as parquet:
            if deep:
                for _batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                    pass
    except (OSError, pa.ArrowException) as reason:
        return f"{path} cannot be read: {reason}"
    return None


def lost_files(table: Path) -> dict[str, str]:
    """Data files that the newest version of a table names and that are not whole, and why.

    A store at work merges files and removes the old ones meanwhile: lost is only what the version
    after the look still names, and what is still not whole then.
    """
    first = _broken_files(table)
    return (
        {path: why for path, why in _broken_files(table).items() if path in first} if first else {}
    )


def _broken_files(table: Path) -> dict[str, str]:
    actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
    files = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    log = f"{table}/_delta_log"
    named = ((data_path(path, log), size) for path, size in files)
    reasons = ((path, reason_broken(table / path, size, deep=False)) for path, size in named)
    return {path: why for path, why in reasons if why is not None}
