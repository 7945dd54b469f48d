"""One SELECT over the views of a root is answered by an Arrow table, wherever the root is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sparkstore.bucket.bucket_download import local_copy
from sparkstore.embedded.answers import answer, inferred_schema
from sparkstore.errors import StoreError, UnreplayedWarning
from sparkstore.log.unreplayed_records import unreplayed
from sparkstore.recovery.point_in_time import AsOf
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import Root, open_root


def query(where: Root | str | Path, statement: str, as_of: AsOf | None = None) -> pa.Table:
    """Answer one SELECT over the views of a root.

    Args:
        where: A root, the path of its folder, or a URI as `s3://lake/queues`.
        statement: In DuckDB's SQL.
        as_of: A time, its text, or a position: the views as they stood then.

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; there is no root;
            `as_of` is in the future, or before history.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.

    Warns:
        UnreplayedWarning: The tables lack acknowledged records, which are in the log of a store
            that was killed; or nobody knows.
    """
    with _opened(where) as root:
        table = answer(root, statement, as_of=as_of).table
        if not isinstance(where, Root):  # a broker asks of its own root, whose log it has
            _warn_of_unreplayed(root)
        return table


def queue_schema(where: Root | str | Path, queue: str) -> str:
    """Infer the schema of the JSON bodies on a queue, as `answers.inferred_schema` does."""
    with _opened(where) as root:
        schema = inferred_schema(root, queue)
        if not isinstance(where, Root):
            _warn_of_unreplayed(root)
        return schema


def _warn_of_unreplayed(root: Root) -> None:
    """Warn where the answer stands in the caller's program, as the command notes it."""
    try:
        records = unreplayed(root)
    except (StoreError, OSError) as failure:
        text = f"whether the tables have all that was acknowledged is not known: {failure}"
        warnings.warn(text, UnreplayedWarning, stacklevel=4)
    else:
        if records is not None:
            warnings.warn(str(records), UnreplayedWarning, stacklevel=4)


@contextmanager
def _opened(where: Root | str | Path) -> Iterator[Root]:
    if isinstance(where, Root):
        yield where
    elif is_object_uri(str(where)):
        with local_copy(str(where), whole=True) as root:
            yield root
    else:
        yield open_root(where)
