"""One Spark session for the whole run; roots whose tables are written as the design says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.session import local_session
from sparkstore.tables.root import Root, open_or_create_root


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a JVM."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)


SHORT_QUERIES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.ui.explainMode": "simple",
}
"""Plans here are long and rows few: to compile them, to plan them stage by stage, to ask which
files may be skipped and to describe each plan to a UI that is not there takes most of the time.
Tests of the commands as processes, the notebook's and the demo's set none of these, and
`make test-all` runs everything as Spark is shipped (SPARKSTORE_SPARK=shipped)."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; two tasks, two shuffle partitions."""
    is_shipped = os.environ.get("SPARKSTORE_SPARK") == "shipped"
    session = local_session(
        "tests",
        heap="1500m",
        # Short queries: to compile them well costs more than it saves; that cache must be large.
        # Two cores are shared by three workers: one thread collects.
        java_options="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
        settings={"spark.sql.shuffle.partitions": "2", **({} if is_shipped else SHORT_QUERIES)},
    )
    yield session
    session.stop()


@pytest.fixture
def skipping(spark: SparkSession) -> Iterator[None]:
    """Delta skips files by their statistics, as shipped."""
    name = "spark.databricks.delta.stats.skipping"
    before = spark.conf.get(name, "true")
    spark.conf.set(name, "true")
    yield
    assert before is not None
    spark.conf.set(name, before)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """An empty root in a folder whose name is not SQL."""
    return open_or_create_root(tmp_path / "ro`ot 'n' ü")


@pytest.fixture(scope="module")
def module_root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """The same for all tests of a module: a query takes seconds, so they share what they can."""
    return open_or_create_root(tmp_path_factory.mktemp("module") / "ro`ot 'n' ü")
