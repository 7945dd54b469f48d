"""One Spark session for the whole run; roots whose tables are written as the design says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.session import local_session
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.spark.session import MANY_TASKS, QUICK_JAVA, SETTINGS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a JVM."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session, quick for many short queries (`support.spark.session`)."""
    session = local_session("tests", heap="1500m", java_options=QUICK_JAVA, settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def many_tasks(spark: SparkSession) -> Iterator[None]:
    """Stages have several tasks, as shipped: rows that belong together come from all of them."""
    for name, value in MANY_TASKS.items():
        spark.conf.set(name, value)
    yield
    for name in MANY_TASKS:
        spark.conf.set(name, SETTINGS[name])


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
