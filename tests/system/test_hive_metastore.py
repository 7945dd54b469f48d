"""Views and plain tables of a root in a bucket, by names in a Hive metastore that is a service."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.objects import versitygw
from tests.support.objects.copies import enqueue
from tests.support.roots.logs import until
from tests.support.spark.cluster import ENVIRONMENT, SPARK, submit

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.thorough,
]

URI = "s3://lake/queues"
_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name>
<value>jdbc:derby:;databaseName={folder}/db;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>"""
_OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "util")]
_QUERY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print(*[row.depth for row in spark.sql("SELECT depth FROM lake.queues").collect()])
print(*[row.depth for row in spark.sql("SELECT depth FROM lake.current_queues").collect()])
print(spark.sql("SELECT count(*) AS n FROM lake.current_queue_messages").first().n)
"""


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[str]:
    """The metastore that Spark's own jars have, over Derby, as a service; its address."""
    folder = tmp_path / "metastore"
    folder.mkdir()
    (folder / "hive-site.xml").write_text(_SITE.format(folder=folder))
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    program = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    path = f"{folder}:{SPARK / 'jars'}/*"
    with (folder / "log").open("w") as log:
        service = subprocess.Popen(
            ["java", *_OPENED, "-cp", path, program, "-p", str(port)],
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        until(lambda: service.poll() is not None or _listens(port), 60)
        assert service.poll() is None, (folder / "log").read_text()[-2000:]
        yield f"thrift://127.0.0.1:{port}"
    finally:
        service.kill()
        service.wait()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as peer:
        return peer.connect_ex(("127.0.0.1", port)) == 0


def ended(process: subprocess.Popen[str]) -> str:
    told, said = process.communicate(timeout=600)
    assert process.returncode == 0, said[-3000:]
    return told


def test_another_session_asks_a_bucket_by_names_in_a_metastore(
    metastore: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore,
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    with versitygw.served(tmp_path / "buckets", monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        enqueue(URI, b"one", b"two")
        for _ in range(2):  # the second finds all names taken
            arguments = ("--nice", "0", "--current", "--publish", "lake", URI)
            ended(submit("local[2]", "compact", *arguments, settings=catalog))
        enqueue(URI, b"three")
        told = asked(catalog, tmp_path / "query.py").splitlines()  # behind what Ivy says
        assert told[-3:] == ["3", "2", "2"]


def asked(catalog: dict[str, str], script: Path) -> str:
    """What a session says that knows the metastore, and how to reach the bucket."""
    script.write_text(_QUERY)
    s3a = {
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    settings = [f"--conf={name}={value}" for name, value in {**catalog, **s3a}.items()]
    how = ["--master", "local[2]", "--properties-file", "conf/spark-cluster.conf", *settings]
    return ended(
        subprocess.Popen(
            [str(SPARK / "bin" / "spark-submit"), *how, str(script)],
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
    )
