"""Open connections of DuckDB that know our functions, and reach no file and no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from sparkstore.errors import InvalidRequest
from sparkstore.sql.dialect import MACROS

SETTINGS: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
"""No files, no extensions, no variables of Python; `add_views` locks them."""


def connected() -> duckdb.DuckDBPyConnection:
    """Open a connection that can parse, and reach nothing.

    Raises:
        InvalidRequest: The current folder was deleted: DuckDB would end the process.
    """
    try:
        Path.cwd()
    except FileNotFoundError as reason:
        raise InvalidRequest("the current folder was deleted: change to another (cd /)") from reason
    connection = duckdb.connect(":memory:", config={**SETTINGS})
    connection.execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    return connection
