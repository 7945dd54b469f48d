"""Is a Parquet file whole? Its size, its magic, its footer and, if asked, every page."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_BATCH_ROWS = 4096


def reason_broken(path: Path, size: int, *, deep: bool) -> str | None:
    """Why a Parquet file is not whole, in words for the log; None if it is.

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
