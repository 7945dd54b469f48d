"""The sink in a real Spark session: SQL, batches, and a stream whose last batch runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_shim.listener_1_0.messages.message import PROTOCOL
from broker_shim.messages.neutral import READERS
from broker_shim.store.interface import Queue
from pyspark_sparkstore import DefaultSource
from tests.support.stores.services import Served, served
from tests.support.stores.stores import done

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One served store for all tests of this file."""
    with served(tmp_path_factory.mktemp("sink") / "root") as there:
        yield there


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The session, which knows the data source."""
    spark.dataSource.register(DefaultSource)
    return spark


def bodies(service: Served, queue: str) -> list[str]:
    with service.store.look() as machine:
        ids = [*machine.state.queues[queue].entries]
    return [service.store.load(each).body.decode() for each in ids]


def test_rows_of_a_frame_are_messages_with_types(session: SparkSession, service: Served) -> None:
    done(service.store.create, Queue("inserted"))
    rows = session.sql(
        "SELECT struct(id) AS body, struct(id AS n, 'x' AS s) AS properties FROM range(5)"
    )
    rows.write.format("sparkstore").mode("append").options(
        target="inserted", socket=str(service.path)
    ).save()
    assert sorted(bodies(service, "inserted")) == [f'{{"id":{number}}}' for number in range(5)]
    with service.store.look() as machine:
        (first, *_) = machine.state.queues["inserted"].entries
    found = READERS[PROTOCOL](service.store.load(first).header).properties
    assert {name: each.kind for name, each in found.items()} == {"n": "long", "s": "string"}
    with pytest.raises(Exception, match="is 'body' meant"):
        rows.withColumnRenamed("body", "boddy").write.format("sparkstore").mode("append").options(
            target="inserted", socket=str(service.path)
        ).save()


def test_a_batch_that_spark_runs_again_is_there_once(
    session: SparkSession, service: Served, tmp_path: Path
) -> None:
    """The commit file of a batch is lost, as by a kill after the sink: Spark runs it again."""
    done(service.store.create, Queue("streamed"))
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        lines = session.readStream.schema("body string").text(str(source))
        query = (
            lines.writeStream.format("sparkstore")
            .options(target="streamed", socket=str(service.path))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    (source / "1.txt").write_text("a\nb\n")
    run()
    assert sorted(bodies(service, "streamed")) == ["a", "b"]
    for left in (checkpoint / "commits").glob("*0*"):
        left.unlink()
    run()
    assert sorted(bodies(service, "streamed")) == ["a", "b"]
    (source / "2.txt").write_text("c\n")
    run()
    assert sorted(bodies(service, "streamed")) == ["a", "b", "c"]
