"""Read a view of one or several roots as record batches, in tasks of Spark.

One moment, whatever the number of tasks: `partitions`, in the driver, looks the tables of a root up
once, and hands their files out in parts (`embedded.view_parts`). A task looks nothing up, so what
the store and its jobs do meanwhile changes no row, and no row is there twice, or missing. A read is
of that moment as long as its plan is used, as one of a Delta table is; a DataFrame that is loaded
anew has a new one. What replaced files leave behind is kept for `reader_grace_s`: a task that comes
later than that fails, and says so.

A root in a bucket is one task, which downloads it once, and so is a view that cannot be cut: they
are as of the moment at which their task began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparkstore.spark_source.columns import ROOT, all_columns, as_asked, check_columns, opened
from sparkstore.spark_source.options import ReadSettings
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import open_root

if TYPE_CHECKING:
    from sparkstore.embedded.plain_entries import Condition
    from sparkstore.embedded.view_parts import ViewPart

_PUSHED = frozenset({"queue", "position", "at", "enqueued_at", "message_id"})
_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class RootPartition(InputPartition):
    """One root, or a part of its view, which one task reads."""

    def __init__(self, root: str, part: ViewPart | None = None) -> None:
        """Read a part; without one, all of the view as it is when the task begins."""
        super().__init__((root, part))


class BatchReader(DataSourceReader):
    """Reads a view. Spark evaluates the filters of a query by itself."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        """Check that the columns are there.

        Args:
            settings: The options of the read, checked.
            schema: The columns that are asked for.

        Raises:
            InvalidRequest: The view or a column is not there.
        """
        self._settings, self._schema = settings, schema
        columns = all_columns(settings)
        check_columns(schema.names, columns, settings.view)
        self._conditions: list[tuple[str, str, Any]] = []
        if settings.queue:
            check_columns(["queue"], columns, settings.view)
            self._conditions.append(("queue", "=", settings.queue))

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of each root, all as of now.

        Raises:
            InvalidRequest: The option asOf is a time in the future, or before history.
            CorruptData: A table of a root is gone.
            Unavailable: Tables cannot be read.
        """
        return [part for root in self._settings.roots for part in self._parts(root)]

    def _parts(self, root: str) -> list[InputPartition]:
        from sparkstore.embedded.duckdb_views import moment_of  # noqa: PLC0415
        from sparkstore.embedded.view_parts import PARTED, parts_of  # noqa: PLC0415

        view = self._settings.view
        if view not in PARTED or is_object_uri(root):
            return [RootPartition(root)]
        moment = moment_of(open_root(root), self._settings.as_of)
        return [RootPartition(root, part) for part in parts_of(view, moment, self._schema.names)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a root, or a part of it, in a task."""
        root, part = partition.value
        schema = to_arrow_schema(self._schema, timezone="UTC")
        names = [name for name in schema.names if not self._is_root(name)]
        for batch in self._batches(root, part, names):
            origin = pa.repeat(pa.scalar(root), batch.num_rows)
            has_origin = len(names) < len(schema)
            whole = batch.append_column(ROOT, origin) if has_origin else batch
            yield as_asked(whole, schema)

    def _batches(
        self, where: str, part: ViewPart | None, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        from sparkstore.embedded.answers import part_batches, view_batches  # noqa: PLC0415
        from sparkstore.embedded.plain_entries import Condition  # noqa: PLC0415

        asked: list[Condition] = [Condition(*condition) for condition in self._conditions]
        if part is not None:
            yield from part_batches(part, names, asked)
            return
        with opened(where) as root:
            yield from view_batches(root, self._settings.view, names, asked, self._settings.as_of)

    def _is_root(self, name: str) -> bool:
        return name == ROOT and len(self._settings.roots) > 1


class FilteringBatchReader(BatchReader):
    """Reads a view, and leaves out early what filters on queue, position and time exclude.

    Spark refuses a class that has `pushFilters` where a session has not turned push-down on.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what helps, and give all back: Spark evaluates each again."""
        for condition in filters:
            operator = _OPERATORS.get(type(condition))
            if operator and len(condition.attribute) == 1 and condition.attribute[0] in _PUSHED:  # type: ignore[attr-defined]
                self._conditions.append((condition.attribute[0], operator, condition.value))  # type: ignore[attr-defined]
        return filters


def batch_reader(settings: ReadSettings, schema: StructType) -> BatchReader:
    """Return the reader that the options ask for."""
    if settings.pushes_filters:
        return FilteringBatchReader(settings, schema)
    return BatchReader(settings, schema)
