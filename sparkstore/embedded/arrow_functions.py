"""Functions of ours for a connection of DuckDB, which get and give columns of Arrow.

Decision: they need no numpy. DuckDB imports it before it takes any function in Python, for those
that get numpy's own values; ours get Arrow's. So where numpy is not installed, or a command hides
it for a faster start (`log.tuning.without`), DuckDB finds an empty module under that name, once and
for a moment (`_prepared`). Rejected: numpy as a dependency, 70 MB and 0.1 s of each start for a
look at its version. If a later DuckDB wants more of it, tests of the wheel alone fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL

from sparkstore.content.binary_schemas import body_json, body_structure
from sparkstore.content.body_schemas import BODY_AS, QUEUE_SCHEMA
from sparkstore.content.typed_values import body_texts, readable_bodies, typed_properties

_VALUE = (
    "STRUCT(type VARCHAR, text VARCHAR, integer BIGINT, number DOUBLE, flag BOOLEAN,"
    " moment TIMESTAMPTZ, bytes BLOB)"
)
_FUNCTIONS: Mapping[str, tuple[Any, list[Any], Any]] = {
    "typed_properties": (typed_properties, ["VARCHAR", "BLOB"], f"MAP(VARCHAR, {_VALUE})"),
    "readable_body": (readable_bodies, ["VARCHAR", "VARCHAR", "BLOB"], "VARCHAR"),
    "body_text": (body_texts, ["VARCHAR", "VARCHAR", "BLOB"], "VARCHAR"),
    "body_json": (body_json, ["VARCHAR", "VARCHAR", "BLOB", "VARCHAR"], "VARCHAR"),
}
_BODY_AS = """CREATE MACRO body_as(protocol, message_type, body, schema) AS from_json(
    coalesce(body_json(protocol, message_type, body, schema), nullif(schema, schema)),
    body_structure(schema)
)"""
"""A null that depends on `schema` keeps DuckDB from asking for its value before a call."""
NAMES = (*_FUNCTIONS, BODY_AS, body_structure.__name__, QUEUE_SCHEMA)
"""Functions of ours that a statement may call."""
_NUMPY = "numpy"
_PREPARING = Lock()


def add_named_functions(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Give a connection those of the functions that a statement names, or stands on."""
    has_schema = BODY_AS in statement.lower()
    for name, (function, arguments, kind) in _FUNCTIONS.items():
        if name in statement.lower() or (has_schema and name == "body_json"):
            _add_function(connection, name, function, arguments, kind)
    if has_schema:
        add_text_function(connection, body_structure)
        connection.execute(_BODY_AS)


def add_text_function(
    connection: duckdb.DuckDBPyConnection, function: Callable[[str], str]
) -> None:
    """Give a connection a function from a text to a text, of the same name.

    DuckDB calls it while it plans a query whose argument is a literal, and more than once: each
    answer is remembered.
    """
    remembered = cache(function)

    def texts(arguments: pa.Array) -> pa.Array:
        rows = [None if text is None else remembered(text) for text in arguments.to_pylist()]
        return pa.array(rows, pa.string())

    _add_function(connection, function.__name__, texts, ["VARCHAR"], "VARCHAR")


def _add_function(
    connection: duckdb.DuckDBPyConnection, name: str, function: Any, arguments: Any, kind: Any
) -> None:
    """Add a function; one that gives text through a macro, which copies the text.

    DuckDB 1.5.5 keeps no hold on Arrow's memory where `coalesce` takes such a text as it is: what
    it told was the memory of something else. `||` copies.
    """
    _prepare()
    inner = f"__{name}" if kind == "VARCHAR" else name  # no query may call it (`typed_select`)
    connection.create_function(inner, function, arguments, kind, type=ARROW, null_handling=SPECIAL)
    if inner != name:
        named = ", ".join(f"a{number}" for number in range(len(arguments)))
        connection.execute(f"CREATE MACRO {name}({named}) AS {inner}({named}) || ''")


def _prepare() -> None:
    """Let DuckDB look for numpy, which it does once in the life of a process, and remembers."""
    with _PREPARING:
        _prepared()


@cache
def _prepared() -> None:
    with _importable_numpy(), duckdb.connect(":memory:") as connection:
        connection.create_function("nothing", lambda: None, [], "VARCHAR")


@contextmanager
def _importable_numpy() -> Iterator[None]:
    """Let an import of numpy succeed meanwhile.

    Only where it would fail: so no other thread of the process can get the empty module for the
    real one.
    """
    try:
        import numpy  # type: ignore[import-not-found, unused-ignore]  # noqa: F401, PLC0415
    except ImportError:
        pass
    else:
        yield
        return
    before = {name: module for name, module in sys.modules.items() if name == _NUMPY}
    empty = ModuleType(_NUMPY)
    empty.__dict__.update(__version__="2", _core=SimpleNamespace(multiarray=None))
    sys.modules[_NUMPY] = empty
    try:
        yield
    finally:
        del sys.modules[_NUMPY]
        sys.modules.update(before)
