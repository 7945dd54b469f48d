"""A stream of events in a real session: the page's examples, and restarts from a checkpoint.

What a reader does beside compaction, trim and loss is tested without a session
(`tests/properties/test_event_stream_machine.py`, `tests/unit/sparkstore/spark_source`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.tables.snapshot import snapshot
from tests.support.documents import blocks, text_of
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import done

pytestmark = pytest.mark.spark


class Served(NamedTuple):
    """A root with its store, and a service that hands its messages out."""

    root: Path
    store: DeltaMessageStore
    serviced: ServicedRoot


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served root, its socket where a write looks for it."""
    root = tmp_path_factory.mktemp("srv") / "queues"
    serviced = ServicedRoot(root)
    (root / "service.sock").symlink_to(serviced.path)
    there = Served(root, serviced.store, serviced)
    done(there.store.create, Queue("orders"))
    done(there.store.create, Queue("feed"))
    done(there.store.create, Exchange("news", "topic"))
    done(there.store.bind, ExchangeBindingKey("news", "feed", "eu.#"), {})
    yield there
    serviced.stop()


def send(service: Served, *bodies: str) -> None:
    """Put messages on `orders` through the service, and wait until Delta has them."""
    with closing(RemoteMessageStore(service.serviced.path)) as store:
        for body in bodies:
            message = store.message(MessageHeader(), body.encode())
            done(store.enqueue, message, "orders")
        done(store.flush)


def bodies(service: Served, queue: str) -> list[str]:
    with service.store.look() as machine:
        ids = [*machine.state.queues[queue].entries]
    return [service.store.load(each).body.decode() for each in ids]


def holders(service: Served, queue: str) -> list[str]:
    with service.store.look() as machine:
        entries = [entry for _, entry in machine.state.queues[queue].entries.items()]
    return [entry.acquired_by for entry in entries if entry.acquired_by]


def landed(spark: SparkSession, folder: Path) -> list[bytes]:
    lake = spark.read.format("delta").load(str(folder / "lake" / "orders"))
    return [bytes(row.body) for row in lake.collect()]


def test_the_examples_of_the_page_run_one_after_the_other(
    spark: SparkSession, service: Served
) -> None:
    names = {"spark": spark}
    for example in blocks(text_of("docs/spark.md"), "python"):
        exec(compile(example.replace("/srv", str(service.root.parent)), "spark.md", "exec"), names)
        done(service.store.flush)
    flight = '{"land":"%s","seats":%d}'
    flights = [flight % ("HAM", 5), flight % ("MUC", 9)]
    taken = spark.read.format("delta").load(str(service.root.parent / "lake" / "orders"))
    assert Counter(bytes(row.body).decode() for row in taken.collect()) == Counter(
        ["first", "second", *flights]
    )
    assert bodies(service, "orders") == []  # settled, when the last batch was done
    assert bodies(service, "feed")[:2] == ["first", "second"]
    assert sorted(bodies(service, "feed")) == sorted(["first", "second", *flights])
    arrived = spark.read.format("delta").load(str(service.root.parent / "lake" / "arrivals"))
    assert [bytes(row.body) for row in arrived.orderBy("position").collect()] == [
        b"first",
        b"second",
    ]
    spark.catalog.dropTempView("orders")


def test_a_query_without_its_checkpoint_loses_no_message(
    spark: SparkSession, service: Served, tmp_path: Path
) -> None:
    """The example has them all; under a fixed name the query is refused, as the sinks leave out."""
    (example,) = [each for each in blocks(text_of("docs/spark.md"), "python") if '"settle"' in each]
    example = example.replace("/srv/lake", f"{tmp_path}/lake")
    example = example.replace("/srv/checkpoints", f"{tmp_path}/checkpoints")
    example = example.replace("/srv", str(service.root.parent))

    def run(text: str) -> None:
        exec(compile(text, "spark.md", "exec"), {"spark": spark})
        rmtree(tmp_path / "checkpoints")
        done(service.store.flush)

    for name in ("first", "again"):
        send(service, name)
        run(example)
    assert sorted(landed(spark, tmp_path)) == [b"again", b"first"]
    assert bodies(service, "orders") == []
    fixed = example.replace("own_id)", '"orders-to-lake")')
    to_queue = (
        fixed.replace('"delta")', '"sparkstore").option("target", "feed")')
        .replace("frame.write", 'frame.select("body").write')
        .replace(f"{tmp_path}/lake/orders", str(service.root))
    )
    for text, why in ((fixed, "the sink never read ticket 1"), (to_queue, "another query has")):
        send(service, "before")
        run(text)
        send(service, "kept")
        with pytest.raises(StreamingQueryException, match=why):
            run(text)
        rmtree(tmp_path / "checkpoints")
        assert bodies(service, "orders")[-1] == "kept"
        for member in [each.partition("/")[0] for each in holders(service, "orders")]:
            service.serviced.service._lose(member)
        run(example)
        assert bodies(service, "orders") == []
    assert landed(spark, tmp_path).count(b"kept") == 2


Rows = list[tuple[int, str]]


def run_once(spark: SparkSession, service: Served, folder: Path, seen: dict[int, Rows]) -> str:
    """Run a stream of `orders` to the end of now; what its progress says of the end."""

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [(row.position, row.body) for row in frame.collect()]
        assert seen.setdefault(batch, rows) == rows

    stream = (
        spark.readStream.format("sparkstore")
        .options(path=str(service.root), kind="enqueued", queue="orders")
        .options(maxRecordsPerTrigger="3", startingPosition=(folder / "start").read_text())
        .schema("position long, body string")
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    found: str = progress["sources"][0]["latestOffset"]
    return found


def test_a_restart_reads_the_batch_again_that_was_not_finished_and_goes_on(
    spark: SparkSession, service: Served, tmp_path: Path
) -> None:
    seen: dict[int, Rows] = {}
    before = max(file.positions[1] for file in snapshot(service.root / "journal"))
    (tmp_path / "start").write_text(str(before + 1))
    sent = [str(number) for number in range(4)]
    send(service, *sent)
    assert json.loads(run_once(spark, service, tmp_path, seen))["recordsBehind"] == 0
    assert len(seen) == 2
    for left in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        left.unlink()
    send(service, "4")
    run_once(spark, service, tmp_path, seen)
    rows = [row for batch in sorted(seen) for row in seen[batch]]
    assert [body for _, body in rows] == [*sent, "4"]
    assert rows == sorted(rows)


def test_of_two_queries_with_one_checkpoint_the_first_ends(
    spark: SparkSession, service: Served, tmp_path: Path
) -> None:
    """Spark knows by the checkpoint that they are one query; the second goes on where it was."""
    events = spark.readStream.format("sparkstore").options(path=str(service.root), kind="*").load()
    sink = events.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "one"))
    first = sink.trigger(processingTime="1 hour").start()
    second = sink.trigger(availableNow=True).start()
    assert not first.isActive
    assert first.id == second.id
    second.awaitTermination()
    assert second.exception() is None
