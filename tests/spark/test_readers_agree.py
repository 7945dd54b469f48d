"""Five readers give the same rows of each table: Spark, deltalake, DuckDB, Polars, delta-kernel.

DuckDB reads the files that the log names by its own Parquet reader; delta-kernel is what DuckDB's
extension `delta` is made of, and reads the log, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.current.publication import publish
from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.reconcile.findings import Finding, write
from sparkstore.tables.root import Root
from tests.support.histories.bundles import bundled, drawn_history
from tests.support.histories.histories import Layers
from tests.support.histories.seeds import seed
from tests.support.roots.roots import build_root

SEED = seed()
PLACES = [
    "journal", "history", "state", "job_runs", "findings", "current/queues",
    "current/queue_messages",
]  # fmt: skip


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Ten histories in one root; both engines have committed to history and to state.

    Its path is plain: Polars 2.1 does not find the files of a table below any other.
    """
    chance = random.Random(SEED)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    middle = history.last_position // 2
    layers = Layers(history, middle, middle, 1, 1000)
    root = build_root(tmp_path_factory.mktemp("told") / "root", layers)
    compact.run(spark, root)
    job_runs.record(root, JobRun("1", "compact", datetime.now(UTC), 1.5, "done", {"n": 1}))
    write(spark, root, "run", [Finding("positions", "error", "journal")])
    publish(root)
    return root


@pytest.fixture(scope="module")
def kernel() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extension `delta`, from the package and not from the network."""
    package = pytest.importorskip("duckdb_extension_delta")
    (extension,) = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.load_extension(str(extension))
        yield connection


def by_duckdb(table: Path) -> pa.Table:
    files = [unquote(uri) for uri in DeltaTable(str(table)).file_uris()]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.read_parquet(files, hive_partitioning=True)
        return found.to_arrow_table()


def by_polars(table: Path) -> pa.Table:
    return pl.read_delta(str(table)).to_arrow()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_five_readers_give_the_same_rows(
    spark: SparkSession, told: Root, kernel: duckdb.DuckDBPyConnection, place: str
) -> None:
    table = told.path / place
    wanted = values(DeltaTable(str(table)).to_pyarrow_table())
    assert wanted, f"seed {SEED}: {place} has rows"
    readers: dict[str, Callable[[], pa.Table]] = {
        "Spark": lambda: spark.read.format("delta").load(str(table)).toArrow(),
        "DuckDB": lambda: by_duckdb(table),
        "Polars": lambda: by_polars(table),
        "delta-kernel": lambda: kernel.execute(
            "SELECT * FROM delta_scan(?)", [str(table)]
        ).to_arrow_table(),
    }
    for name, read in readers.items():
        assert values(read()) == wanted, f"seed {SEED}: {name} reads {place} otherwise"


def values(table: pa.Table) -> list[str]:
    """The rows as text, sorted: no reader promises an order of rows or columns."""
    return sorted(json.dumps(plain(row), sort_keys=True) for row in table.to_pylist())


def plain(value: Any) -> Any:
    """Maps, however they come, as objects; times in UTC; bytes as hexadecimal."""
    match value:
        case [*pairs]:
            each = ((*pair.values(),) if isinstance(pair, Mapping) else pair for pair in pairs)
            return {key: plain(told) for key, told in each}
        case Mapping():
            return {name: plain(told) for name, told in value.items()}
        case datetime():
            return value.astimezone(UTC).isoformat()
        case bytes():
            return value.hex()
    return value
