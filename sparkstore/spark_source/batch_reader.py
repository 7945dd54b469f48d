"""Read a view of one or several roots as record batches, in tasks of Spark.

Decision: a root is one partition. A task looks the tables up at one moment, and the embedded engine
answers from them. With more partitions of one root each would look them up by itself, so a message
that moved in between would be there twice, or not at all.
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

from sparkstore.spark_source.columns import ROOT, as_asked, check_columns, columns_there, opened
from sparkstore.spark_source.options import ReadSettings

if TYPE_CHECKING:
    from sparkstore.embedded.answers import Condition

_PUSHED = frozenset({"queue", "position", "at", "enqueued_at", "message_id"})
_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class RootPartition(InputPartition):
    """One root, which one task reads."""


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
        there = columns_there(settings)
        check_columns(schema.names, there, settings.view)
        self._conditions: list[tuple[str, str, Any]] = []
        if settings.queue:
            check_columns(["queue"], there, settings.view)
            self._conditions.append(("queue", "=", settings.queue))

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each root."""
        return [RootPartition(root) for root in self._settings.roots]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one root, in a task."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        names = [name for name in schema.names if not self._is_root(name)]
        from sparkstore.embedded.answers import Condition, view_batches  # noqa: PLC0415

        asked: list[Condition] = [Condition(*each) for each in self._conditions]
        with opened(partition.value) as root:
            view, as_of = self._settings.view, self._settings.as_of
            for batch in view_batches(root, view, names, asked, as_of):
                origin = pa.repeat(pa.scalar(partition.value), batch.num_rows)
                has_origin = len(names) < len(schema)
                whole = batch.append_column(ROOT, origin) if has_origin else batch
                yield as_asked(whole, schema)

    def _is_root(self, name: str) -> bool:
        return name == ROOT and len(self._settings.roots) > 1


class FilteringBatchReader(BatchReader):
    """Reads a view, and leaves out early what filters on queue, position and time exclude.

    Spark refuses a class that has `pushFilters` where a session has not turned push-down on.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what helps, and give all back: Spark evaluates each again."""
        for each in filters:
            operator = _OPERATORS.get(type(each))
            if operator and len(each.attribute) == 1 and each.attribute[0] in _PUSHED:  # type: ignore[attr-defined]
                self._conditions.append((each.attribute[0], operator, each.value))  # type: ignore[attr-defined]
        return filters


def batch_reader(settings: ReadSettings, schema: StructType) -> BatchReader:
    """Return the reader that the options ask for."""
    if settings.pushes_filters:
        return FilteringBatchReader(settings, schema)
    return BatchReader(settings, schema)
