"""Decide which paths a Delta log may name: data files within its own table, and nothing else.

A log that comes from a bucket or a backup was written by whoever may write there. A path of it
becomes the name of a file that is copied, linked, opened or removed, so one with `..` would do that
anywhere on this machine. Engines take `file:/…` and `s3://…` for a place of its own, too. Our
tables have names that are made of partitions, numbers and UUIDs, so only such names may pass.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from sparkstore.errors import CorruptData

_PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_=.+%-]*/)*[A-Za-z0-9][A-Za-z0-9_=.+%-]*")
"""Steps that begin with no dot, so none is `..`, and no line, so none is `_delta_log`."""


def data_path(path: object, log: str) -> str:
    """Return the path of a data file below its table's folder, decoded.

    Args:
        path: What the log says.
        log: The file that says it, to tell people.

    Raises:
        CorruptData: It is no path within a table.
    """
    decoded = unquote(path) if isinstance(path, str) else ""
    if not _PATH.fullmatch(decoded):
        message = f"{log} names {str(path)[:200]!r}, which is no data file within its table:"
        raise CorruptData(f"{message} restore it from a replica or a backup")
    return decoded


def check_within(folder: Path, name: str) -> Path:
    """Return a file below a folder by its name in a storage, which has no step upwards.

    Raises:
        CorruptData: The name leads out of the folder, by itself or by a link that is not the
            table's own folder.
    """
    path, table = folder / name, folder / name.partition("/")[0]
    is_plain = all(step not in {"", ".", ".."} for step in name.split("/"))
    if not (is_plain and path.resolve().is_relative_to(table.resolve())):
        message = f"{str(path)[:200]!r} leads out of its table: restore it from a replica or a"
        raise CorruptData(f"{message} backup")
    return path
