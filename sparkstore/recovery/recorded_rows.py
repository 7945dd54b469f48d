"""Records of journal and history together, without a JVM: some columns of those that are wanted.

What leaves the journal is in history already (ARCHITECTURE: Rule 5), and the journal's version is
taken first, so nothing is missed; a position that both have counts once.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.core.records import Kind
from sparkstore.errors import Unavailable
from sparkstore.recovery.arrow_fold import rows_that_count
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import ANY, read_files, snapshot

_TRIES = 4


def recorded_rows(
    root: Root, columns: pa.Schema, where: ds.Expression, between: tuple[int, int] = ANY
) -> pa.Table:
    """Read records that count, each once.

    Args:
        root: The root whose tables are read.
        columns: The columns that are wanted; `position`, `epoch` and `kind` among them.
        where: The condition that the wanted records meet.
        between: The least and the largest message id of them, by which files are left out.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    for _ in range(_TRIES):
        try:
            return _rows(root, columns, where, between)
        except (OSError, DeltaError, pa.ArrowException) as reason:
            failure = reason
    message = f"history cannot be read: {failure}; retry later"
    raise Unavailable(message) from failure


def _rows(
    root: Root, columns: pa.Schema, where: ds.Expression, between: tuple[int, int]
) -> pa.Table:
    (first, last), journal, history = between, snapshot(root.journal), snapshot(root.history)
    may_have = (f for f in history if f.message_ids[0] <= last and f.message_ids[1] >= first)
    old = read_files(may_have, columns, where)
    opened = ds.field("kind") == Kind.OPENED.column
    new = rows_that_count(read_files(journal, columns, where | opened))
    new = new.filter(pc.not_equal(new["kind"], Kind.OPENED.column))
    only_there = pc.invert(pc.is_in(new["position"], value_set=old["position"].combine_chunks()))
    return pa.concat_tables([old, new.filter(only_there)])
