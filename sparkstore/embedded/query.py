"""One SELECT over the views of a root is answered by an Arrow table, wherever the root is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparkstore.embedded.answers import answer
from sparkstore.replication.bucket_download import local_copy
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import Root, open_root


def query(where: Root | str | Path, statement: str) -> pa.Table:
    """Answer one SELECT over the views of a root.

    Args:
        where: A root, the path of its folder, or a URI as `s3://lake/queues`.
        statement: In DuckDB's SQL.

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; there is no root.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    if isinstance(where, Root):
        return answer(where, statement).table
    if is_object_uri(str(where)):
        with local_copy(str(where), whole=True) as root:
            return answer(root, statement).table
    return answer(open_root(where), statement).table
