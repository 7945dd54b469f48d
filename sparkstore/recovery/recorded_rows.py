"""Records of journal and history together, without a JVM: some columns of those that are wanted.

What leaves the journal is in history already (ARCHITECTURE: Rule 5), and the journal's version is
taken first, so nothing is missed; a position that both have counts once. Which rows of the journal
count, is said by the records of its openings; these are read by themselves, three narrow columns:
asked for with what is wanted, they would have the headers of the whole journal decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.recovery.arrow_fold import rows_that_count
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import ANY, FileStats, columns_of, read_files, snapshot

_TRIES = 4
_OF_RECORDS = ("position", "epoch", "kind")
"""What tells whether a row counts."""


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
    return read_again(lambda: rows_now(root, columns, where, between))


def read_again(read: Callable[[], pa.Table]) -> pa.Table:
    """Read; once more, a few times, if it fails, as a job or a merge may move files meanwhile.

    Raises:
        CorruptData: As `read` does, each time.
        Unavailable: Storage did not answer, again and again.
    """
    failure: StoreError
    for _ in range(_TRIES):
        try:
            return read()
        except CorruptData as reason:
            failure = reason
        except (OSError, DeltaError, pa.ArrowException) as reason:
            failure = Unavailable(f"history cannot be read: {reason}; retry later")
            failure.__cause__ = reason
    raise failure


def rows_now(
    root: Root, columns: pa.Schema, where: ds.Expression, between: tuple[int, int] = ANY
) -> pa.Table:
    """Read what `recorded_rows` does, once; what storage raises is raised."""
    journal, history = snapshot(root.journal), snapshot(root.history)
    old = read_files(_may_have(history, between), columns, where)
    new = read_files(_may_have(journal, between), columns, where)
    is_opened = ds.field("kind") == Kind.OPENED.column
    openings = read_files(journal, columns_of(columns, _OF_RECORDS), is_opened)
    new = rows_that_count(pa.concat_tables([new, openings], promote_options="default"))
    new = new.filter(pc.not_equal(new["kind"], Kind.OPENED.column))
    only_there = pc.invert(pc.is_in(new["position"], value_set=old["position"].combine_chunks()))
    return pa.concat_tables([old, new.filter(only_there)])


def _may_have(files: Iterable[FileStats], between: tuple[int, int]) -> Iterator[FileStats]:
    """Leave out files without a message whose id is between two."""
    first, last = between
    for file in files:
        least, largest = file.message_ids
        if least <= last and largest >= first:
            yield file
