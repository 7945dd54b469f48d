"""The columns of a read: those of its view, or the ones that the user names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from sparkstore.bucket.bucket_download import local_copy
from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.options import ReadSettings, read_options
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import Root, open_root

ROOT = "root"
"""The column that says which of several roots a row is of."""
_ON_REQUEST = "body"


def default_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read without `.schema(…)`.

    Raises:
        InvalidRequest: An option is wrong, or a column or the view is not there.
    """
    settings = read_options(options)
    columns = all_columns(settings)
    if settings.columns == ("*",):
        return columns
    wanted = settings.columns or [name for name in columns.names if name != _ON_REQUEST]
    check_columns(wanted, columns, settings.view)
    return StructType([columns[name] for name in wanted])


def all_columns(settings: ReadSettings) -> StructType:
    """Return all columns of the view, and `root` if there are several."""
    with opened(settings.roots[0]) as root:
        columns: StructType = from_arrow_schema(_schema(root, settings.view))
    if len(settings.roots) > 1:
        columns = StructType([StructField(ROOT, StringType()), *columns.fields])
    return columns


def check_columns(wanted: list[str] | tuple[str, ...], columns: StructType, view: str) -> None:
    """Refuse a column that a view has not.

    Raises:
        InvalidRequest: One is not there; the message lists those that are.
    """
    for name in wanted:
        if name not in columns.names:
            message = f"view {view} has no column {name!r}: it has {', '.join(columns.names)}"
            raise InvalidRequest(message)


def as_asked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give the columns the types that Spark demands.

    Raises:
        InvalidRequest: A value has no such type.
    """
    arrays = []
    for field in schema:
        try:
            arrays.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as reason:
            message = f"column {field.name} cannot be read as {field.type}: {reason}"
            raise InvalidRequest(message) from reason
    if not arrays:
        return pa.table({"": batch.column(0)}).select([]).to_batches()[0]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def opened(where: str) -> Iterator[Root]:
    """Open a root in a folder, or a copy of one in a bucket for as long as it is read."""
    if is_object_uri(where):
        with local_copy(where, whole=True) as root:
            yield root
    else:
        yield open_root(where)


def _schema(root: Root, view: str) -> pa.Schema:
    from sparkstore.embedded.answers import view_schema  # noqa: PLC0415

    return view_schema(root, view)
