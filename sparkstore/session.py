"""A Spark session that knows Delta, on this machine or as spark-submit made it.

What a session must have is in `SETTINGS`; `conf/spark-defaults.conf` says the same to
spark-submit, and `conf/spark-cluster.conf` to one whose executors are on other machines. A test
compares them.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.log_format import say_of_java
from sparkstore.session_cache import archive_option, known_jars, remember_jars

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""Delta's jar, as `spark.jars.packages` names it; 4.4.1 was published without one."""

SOURCE_PACKAGE = "pyspark_sparkstore"
"""The package with the data source, named as PySpark's own look-up wants it."""

CONF = Path(__file__).parent / "conf"
"""Ivy and log4j settings: package data, so that an installed wheel has them too."""

SETTINGS: Mapping[str, str] = {
    "spark.jars.packages": DELTA_PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "5",
}
"""What every session needs, wherever it runs; the reasons are in `conf/spark-defaults.conf`."""

_LEAST_JAVA = 17
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def quiet_query_log() -> None:
    """Keep PySpark from logging 10 KB of JSON beside the error of a query that is wrong."""
    logging.getLogger("SQLQueryContextLogger").disabled = True


def local_session(
    app: str,
    *,
    heap: str = "2g",
    cores: int = 2,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
    makes_archive: bool = False,
) -> SparkSession:
    """A session in this process, with Delta; the running one if there is one.

    Args:
        app: Name that Spark shows.
        heap: Memory of the JVM, as Java writes it (`2g`).
        cores: Tasks at a time.
        java_options: More options of the JVM.
        settings: Spark settings to add or replace.
        makes_archive: Whether the JVM keeps its classes for later starts (`session_cache`), if none
            has. That takes it some seconds at its end, and 190 MB.

    Raises:
        InvalidRequest: No Java, or one that is too old.
        Unavailable: Spark did not start, or Delta's jar could not be fetched.
    """
    quiet_query_log()
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    archive = archive_option(check_java(), makes=makes_archive)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    local = _local_settings(heap, f"{archive} {java_options}")
    wanted = _by_path({**SETTINGS, **local, **(settings or {})})
    conf = SparkConf(loadDefaults=False).setMaster(f"local[{cores}]").setAppName(app)
    for name, value in wanted.items():
        conf.set(name, value)
    with _no_warning_of_pandas():
        spark = SparkSession(SparkContext(conf=conf, gateway=_gateway(conf)))
    if wanted.get("spark.jars.packages") == DELTA_PACKAGE:
        jars = spark.sparkContext.getConf().get("spark.jars", "") or ""
        remember_jars(DELTA_PACKAGE, filter(None, jars.split(",")))
    _register_source(spark)
    return spark


def _register_source(spark: SparkSession) -> None:
    """Make `format("sparkstore")` known, which Spark may look for in another Python.

    The source lives above this package, so it is found by its name and never imported.
    """
    if find_spec(SOURCE_PACKAGE) is not None:
        spark.dataSource.register(import_module(SOURCE_PACKAGE).DefaultSource)


def submitted_session(
    app: str, *, heap: str = "2g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of a job: spark-submit's if that started us, else a local one.

    Args:
        app: Name that Spark shows.
        heap: Memory of a local JVM; spark-submit has decided it before (`--driver-memory`).
        settings: Settings of a local session, to add or replace; spark-submit has its own.

    Raises:
        InvalidRequest: spark-submit was not told about Delta, or we were given settings beside it.
        Unavailable: Spark does not start, for the reasons of `local_session`.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return local_session(app, heap=heap, settings=settings)
    if settings:
        raise InvalidRequest("spark-submit has Spark's settings: give it --conf, before the script")
    quiet_query_log()
    with _no_warning_of_pandas():
        spark = SparkSession.builder.appName(app).getOrCreate()
    if "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        message = "spark-submit has no Delta: add --properties-file conf/spark-defaults.conf"
        raise InvalidRequest(message)
    return spark


def cluster() -> str:
    """The master that spark-submit was told, if its executors are on a cluster; else empty.

    No session is made: the JVM of spark-submit knows it.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return ""
    SparkContext._ensure_initialized()  # noqa: SLF001 - joins that JVM, and starts nothing
    master = SparkConf().get("spark.master") or ""
    return "" if re.match(r"local(\[|$)", master) else master


def reads_s3a() -> bool:
    """True if the JVM of spark-submit has Hadoop's client of S3, which executors need."""
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None, "call cluster() first"
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(_S3A))


def tell_hadoop(spark: SparkSession, values: Mapping[str, str]) -> None:
    """Give Hadoop's file systems settings, but for those that spark-submit was given."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    given = spark.sparkContext.getConf()
    for name, value in values.items():
        if not given.contains(f"spark.hadoop.{name}"):
            hadoop.set(name, value)


@contextmanager
def _no_warning_of_pandas() -> Iterator[None]:
    """Silence what pyspark 4.2 says of a pandas it was not tested with: none is used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _local_settings(heap: str, java_options: str) -> dict[str, str]:
    log4j = (CONF / "log4j2.properties").as_uri()
    return {
        "spark.driver.memory": heap,
        "spark.jars.ivySettings": str(CONF / "ivysettings.xml"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j} {java_options}",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "sparkstore-warehouse"),
    }


def _by_path(wanted: dict[str, str]) -> dict[str, str]:
    """Name Delta's jars by path, if only they are wanted and an earlier start found them."""
    if wanted.get("spark.jars.packages") != DELTA_PACKAGE or wanted.get("spark.jars"):
        return wanted
    jars = known_jars(DELTA_PACKAGE)
    if not jars:
        return wanted
    del wanted["spark.jars.packages"]
    return {**wanted, "spark.jars": ",".join(jars)}


def check_java() -> str:
    """Refuse to start without a Java that Spark can run on.

    Returns:
        Its path, and what it says of its version.

    Raises:
        InvalidRequest: There is none, or it is too old; the message says which was found.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is none"
        message = f"Spark needs Java {_LEAST_JAVA}+, {where}: install a JDK or set JAVA_HOME"
        raise InvalidRequest(message)
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    if version is None or int(version[1]) < _LEAST_JAVA:
        own = shown.splitlines()[0] if shown else "an unknown version"
        message = f"Spark needs Java {_LEAST_JAVA}+, {java} is {own}: set JAVA_HOME"
        raise InvalidRequest(message)
    return f"{java} {shown}"


def _gateway(conf: SparkConf) -> object:
    """Start the JVM, holding back Ivy's report of what it fetched.

    Raises:
        Unavailable: It ended before it was ready; the reason is in the message.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return launch_gateway(conf)  # type: ignore[no-untyped-call]
    output = _JvmOutput()
    try:
        pipes = {"stdout": output.writer, "stderr": output.writer}
        gateway = launch_gateway(conf, pipes)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as reason:
        raise Unavailable(_why(output.end())) from reason
    output.pass_on()
    return gateway


def _why(output: str) -> str:
    if "unresolved dependenc" in output.lower():
        return (
            f"{DELTA_PACKAGE} could not be fetched: connect to the network once, or name a mirror"
            f" in {CONF / 'ivysettings.xml'}"
        )
    last = [line for line in output.splitlines() if line.strip()][-3:]
    return "Spark did not start: " + " | ".join(last)


class _JvmOutput:
    """Output of the JVM: kept while it starts, passed on to standard error afterwards."""

    def __init__(self) -> None:
        reader, self._descriptor = os.pipe()
        self.writer: IO[bytes] = os.fdopen(self._descriptor, "wb")
        self._kept: list[str] = []
        self._started = False
        self._thread = threading.Thread(target=self._copy, args=(reader,), daemon=True)
        self._thread.start()

    def _copy(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if self._started:
                    say_of_java(line)
                else:
                    self._kept.append(line)

    def pass_on(self) -> None:
        """Pass the JVM's output on to the user from now on."""
        self._started = True
        self.writer.close()

    def end(self) -> str:
        """Return all that the JVM said before it ended."""
        self.writer.close()
        self._thread.join(timeout=10)
        return "".join(self._kept)
