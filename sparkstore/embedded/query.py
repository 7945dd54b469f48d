"""One SELECT over the views of a root is answered by an Arrow table, wherever the root is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparkstore.embedded.answers import answer
from sparkstore.recovery.point_in_time import AsOf
from sparkstore.replication.bucket_download import local_copy
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
    """
    if isinstance(where, Root):
        return answer(where, statement, as_of=as_of).table
    if is_object_uri(str(where)):
        with local_copy(str(where), whole=True) as root:
            return answer(root, statement, as_of=as_of).table
    return answer(open_root(where), statement, as_of=as_of).table
