"""A standalone Spark cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.support.checkout import CHECKOUT
from tests.support.spark.session import SHORT_QUERIES

SPARK = Path(pyspark.__file__).parent
ENVIRONMENT = {
    "SPARK_HOME": str(SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
}
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUICK = SHORT_QUERIES | {
    "spark.driver.host": "127.0.0.1",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
"""For few rows, by one executor on each of two workers; the rest is as shipped."""


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start it, with room for two executors on each worker; gives the URL of its master."""
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        master = running.enter_context(_daemon("master.Master", *here, "--port", "0"))
        assert master.stderr is not None
        url = next(found[1] for line in master.stderr if (found := _STARTED.search(line)))
        for number in range(workers):  # a job waits for them
            size = ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / str(number))]
            running.enter_context(_daemon("worker.Worker", *here, *size, url))
        yield url


@contextmanager
def _daemon(program: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *options],
        env={**os.environ, **ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,  # says less than a pipe holds
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def submit(
    master: str, program: str, *arguments: str, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start spark-submit of one of jobs/ with conf/spark-cluster.conf."""
    given = [f"--conf={name}={value}" for name, value in {**_QUICK, **(settings or {})}.items()]
    how = ["--master", master, "--properties-file", "conf/spark-cluster.conf", *given]
    return subprocess.Popen(
        [str(SPARK / "bin" / "spark-submit"), *how, f"jobs/{program}.py", *arguments],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )


def event_log(folder: Path) -> dict[str, str]:
    """Settings with which Spark writes down what it did."""
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }


def tasks_by_executor(folder: Path) -> Counter[str]:
    """How many tasks each executor has ended, by that log."""
    lines = (line for file in folder.rglob("events_*") for line in file.read_text().splitlines())
    events = (json.loads(line) for line in lines if '"SparkListenerTaskEnd"' in line)
    return Counter(event["Task Info"]["Executor ID"] for event in events)
