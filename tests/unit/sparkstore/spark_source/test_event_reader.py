"""A stream of events driven by hand over roots of a real store: where it begins, what it refuses.

`tests/properties/test_event_stream_machine.py` moves the tables under it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

import sparkstore
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from pyspark_sparkstore import DefaultSource
from sparkstore.errors import CorruptData, InvalidRequest, StoreError
from sparkstore.recovery.recovery import recover
from sparkstore.replication.promote import promote
from sparkstore.spark_source import event_reader
from sparkstore.spark_source.columns import all_columns
from sparkstore.spark_source.event_reader import EventStreamReader
from sparkstore.spark_source.options import read_options
from sparkstore.tables.root import open_root
from sparkstore.tables.schema import SCHEMA_VERSION
from tests.support.objects.copies import compact, enqueue, trim
from tests.support.objects.s3_server import S3Server, served
from tests.support.roots.replicas import replica_of
from tests.support.roots.roots import state_table
from tests.support.stores.stores import done

pytestmark = pytest.mark.slow

ALL = ReadAllAvailable()
SPARK: Any = CPickleSerializer()
"""How Spark sends a reader and its partitions to a task."""
Offset = dict[str, Any]


def stream(root: Path, **options: str) -> EventStreamReader:
    source = DefaultSource({"path": str(root), "kind": "enqueued", **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, EventStreamReader)
    return reader


def rows(reader: EventStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """What the tasks of a batch read, in order."""
    partitions = reader.partitions(start, end)
    return [row for each in partitions for b in reader.read(each) for row in b.to_pylist()]


def bodies(reader: EventStreamReader, start: Offset, limit: ReadLimit = ALL) -> list[bytes]:
    found = rows(reader, start, reader.latestOffset(start, limit))
    return [row["body"] for row in found]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with four messages on `q`, the first two of them in history."""
    path = tmp_path_factory.mktemp("stream") / "root"
    enqueue(path, b"0", b"1")
    compact(path)
    trim(path)
    enqueue(path, b"2", b"3")
    return path


@pytest.fixture
def root(unchanged: Path, tmp_path: Path) -> Path:
    """A copy of that root, to be changed."""
    return Path(shutil.copytree(unchanged, tmp_path / "root"))


def test_an_event_has_the_columns_of_its_record_and_the_usual_ones_have_no_content(
    unchanged: Path,
) -> None:
    reader = stream(unchanged, kind="*")
    start = reader.initialOffset()
    found = rows(reader, start, reader.latestOffset(start, ALL))
    assert [row["position"] for row in found] == [*range(1, len(found) + 1)]
    assert {"opened", "created", "ids_reserved", "enqueued"} == {row["kind"] for row in found}
    assert "body" not in found[0]
    enqueued = next(row for row in found if row["kind"] == "enqueued")
    assert (enqueued["queue"], enqueued["message_id"], enqueued["message_bytes"]) == ("q", 1, 1)
    whole = stream(unchanged, columns="*")
    (first, *_) = rows(whole, start, whole.latestOffset(start, ALL))
    assert (first["body"], first["protocol"], first["durable"]) == (b"0", "raw", True)


def test_a_batch_has_the_events_of_a_stream_with_their_content(unchanged: Path) -> None:
    def read(**options: str) -> list[bytes]:
        source = DefaultSource({"path": str(unchanged), "kind": "enqueued", **options})
        reader = source.reader(source.schema())
        parts = reader.partitions()
        return [
            b["body"] for part in parts for batch in reader.read(part) for b in batch.to_pylist()
        ]

    assert read(columns="position,body") == [b"0", b"1", b"2", b"3"]
    assert read(columns="body", startingPosition="latest") == []
    (third,) = read(columns="body", startingPosition=str(_third(unchanged)))[:1]
    assert third == b"2"
    with pytest.raises(InvalidRequest, match="a read has no trigger"):
        read(maxRecordsPerTrigger="1")


def test_a_root_in_a_bucket_is_read_by_the_driver_and_no_task_needs_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks have other processes, which have neither the bucket nor its copy."""

    def put(server: S3Server) -> None:
        stored = {key for key in server.objects if key.startswith("queues/")}
        files = [file for file in root.rglob("*") if file.is_file()]
        kept = {f"queues/{file.relative_to(root)}": file.read_bytes() for file in files}
        for key in stored - {*kept}:
            del server.objects[key]
        server.objects.update(kept)

    source = DefaultSource({"path": "s3://lake/queues", "kind": "enqueued", "columns": "body"})
    with served(monkeypatch) as server:
        put(server)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, EventStreamReader)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        first = SPARK.dumps(reader.partitions(start, end))
        enqueue(root, b"4")
        compact(root)
        trim(root)
        put(server)
        again = reader.latestOffset(end, reader.getDefaultReadLimit())
        second = SPARK.dumps(reader.partitions(end, again))
        assert reader.reportLatestOffset()["recordsBehind"] == 0
        whole = source.reader(source.schema())
        third = SPARK.dumps(whole.partitions())
        monkeypatch.setattr(event_reader, "_MOST_SHIPPED", 1)
        with pytest.raises(InvalidRequest, match="the driver reads 1 at most: give startingPos"):
            whole.partitions()
    task = SPARK.loads(SPARK.dumps(reader))
    assert [_bodies(task, part) for part in (first, second, third)] == [
        [b"0", b"1", b"2", b"3"],
        [b"4"],
        [b"0", b"1", b"2", b"3", b"4"],
    ]


def test_a_root_whose_folder_only_the_driver_has_is_read_there(root: Path) -> None:
    reader = stream(root, columns="body,message_bytes", readInDriver="true")
    start = reader.initialOffset()
    parts = SPARK.dumps(reader.partitions(start, reader.latestOffset(start, ALL)))
    assert reader.getDefaultReadLimit() == ReadMaxRows(100_000)
    task = SPARK.loads(SPARK.dumps(reader))
    shutil.rmtree(root)
    assert _bodies(task, parts) == [b"0", b"1", b"2", b"3"]


def _bodies(task: EventStreamReader, partitions: bytes) -> list[bytes]:
    """Read partitions as the tasks do that get them."""
    batches = [batch for part in SPARK.loads(partitions) for batch in task.read(part)]
    return [row["body"] for batch in batches for row in batch.to_pylist()]


def _third(root: Path) -> int:
    """Return the position of the third message."""
    reader = stream(root)
    start = reader.initialOffset()
    position: int = rows(reader, start, reader.latestOffset(start, ALL))[2]["position"]
    return position


def test_content_that_another_record_brought_is_read_with_the_event(root: Path) -> None:
    store = DeltaMessageStore(root)
    done(store.create, Queue("r"))
    header = MessageHeader(subject="both", properties=(("k", "v"),))
    message = store.message(header, b"on two queues")
    done(store.enqueue, message, "q")
    done(store.enqueue, message, "r")
    large = done(store.stage, store.message(MessageHeader(subject="large")), [b"in ", b"pieces"])
    done(store.enqueue, large, "r")
    store.close()
    columns = "queue,position,subject,properties,body"
    of_r = stream(root, queue="r", columns=columns)
    start = of_r.initialOffset()
    end = of_r.latestOffset(start, ALL)
    found = rows(of_r, start, end)
    assert [(row["subject"], row["body"]) for row in found] == [
        ("both", b"on two queues"),
        ("large", b"in pieces"),
    ]
    assert found[0]["properties"] == [("k", "v")]
    headers = stream(root, queue="r", columns="subject")
    assert [row["subject"] for row in rows(headers, start, end)] == ["both", "large"]
    pieces = stream(root, kind="content", columns="body,body_offset")
    assert [row["body"] for row in rows(pieces, start, end)] == [b"in ", b"pieces"]


def test_a_stream_begins_where_it_is_told(unchanged: Path) -> None:
    def begun(position: str) -> list[bytes]:
        reader = stream(unchanged, columns="body", startingPosition=position)
        return bodies(reader, reader.initialOffset())

    assert begun("earliest") == [b"0", b"1", b"2", b"3"]
    assert begun("latest") == []
    plain = stream(unchanged)
    start = plain.initialOffset()
    events = rows(plain, start, plain.latestOffset(start, ALL))
    third = events[2]
    assert begun(str(third["position"])) == [b"2", b"3"]
    assert begun(str(events[3]["position"] + 1)) == []
    assert begun(third["at"].isoformat()) == [b"2", b"3"]
    assert begun(third["at"].replace(tzinfo=None).isoformat()) == [b"2", b"3"]
    assert begun("2001-01-01") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingPosition": "99"}, "99 is not there yet: the last record is"),
        ({"startingPosition": "2999-01-01"}, "is in the future"),
        ({"queue": "qq"}, "no queue 'qq'.*is 'q' meant"),
        ({"queue": "orders"}, "no queue 'orders'.*create it first"),
    ],
)
def test_a_beginning_that_is_not_there_is_refused(
    unchanged: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        stream(unchanged, **options).initialOffset()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": "bdy"}, "has no column 'bdy'"),
        ({"path": "/nowhere"}, "is not a sparkstore root"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_at_its_start(
    unchanged: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        stream(unchanged, **options)


def test_a_root_of_a_newer_release_is_refused_by_streams_reads_and_queries(root: Path) -> None:
    (root / "root.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    settings = read_options({"path": str(root)})
    for ask in (
        lambda: stream(root),
        lambda: all_columns(settings),
        lambda: sparkstore.query(root, "SELECT 1"),
    ):
        with pytest.raises(CorruptData, match="install a newer sparkstore"):
            ask()


def test_a_batch_keeps_its_limits(root: Path) -> None:
    reader = stream(root, columns="body", maxRecordsPerTrigger="5", maxBytesPerTrigger="2")
    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    start = reader.initialOffset()
    assert bodies(reader, start, ReadMaxRows(5)) == [b"0", b"1"]
    assert bodies(reader, start, ALL) == [b"0", b"1", b"2", b"3"]
    by_bytes = stream(root, columns="body", maxBytesPerTrigger="3")
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(3)
    assert bodies(by_bytes, start, ReadMaxBytes(3)) == [b"0", b"1", b"2"]
    enqueue(root, b"larger than that", b"4")
    larger = stream(root, columns="body", maxBytesPerTrigger="4")
    middle = larger.latestOffset(start, ReadMaxBytes(4))
    assert bodies(larger, middle, ReadMaxBytes(4)) == [b"larger than that"]


def test_what_comes_after_the_run_began_waits_for_the_next_run(root: Path) -> None:
    reader = stream(root, columns="body")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    enqueue(root, b"4")
    end = reader.latestOffset(start, ALL)
    assert [row["body"] for row in rows(reader, start, end)] == [b"0", b"1", b"2", b"3"]
    assert reader.latestOffset(end, ALL) is end
    assert bodies(stream(root, columns="body"), end) == [b"4"]


def test_progress_says_how_far_the_stream_is_behind(unchanged: Path) -> None:
    reader = stream(unchanged)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(1))
    behind = reader.reportLatestOffset()
    assert behind["recordsBehind"] == behind["position"] - 1
    assert behind["secondsBehind"] > 0
    reader.latestOffset(start, ALL)
    caught_up = reader.reportLatestOffset()
    assert (caught_up["recordsBehind"], caught_up["secondsBehind"]) == (0, 0)


def test_a_queue_that_is_destroyed_ends_with_an_event_and_the_stream_goes_on(root: Path) -> None:
    reader = stream(root, kind="created,enqueued,destroyed", queue="q")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ALL)
    store = DeltaMessageStore(root)
    done(store.destroy, Queue("q"))
    done(store.create, Queue("q"))
    store.close()
    enqueue(root, b"again")
    found = rows(reader, middle, reader.latestOffset(middle, ALL))
    assert [row["kind"] for row in found] == ["destroyed", "created", "enqueued"]


def test_a_checkpoint_of_another_root_or_of_no_stream_is_refused(
    root: Path, tmp_path: Path
) -> None:
    start = stream(root).initialOffset()
    enqueue(tmp_path / "other", b"0")
    other = stream(tmp_path / "other")
    with pytest.raises(InvalidRequest, match=r"the checkpoint is of root .*, and .*other is root"):
        other.latestOffset(start, ALL)
    with pytest.raises(InvalidRequest, match="no stream of events wrote: give this query a check"):
        other.latestOffset({"ticket": 5}, ALL)


def test_records_that_retention_dropped_end_the_stream_or_are_passed_over(root: Path) -> None:
    reader = stream(root, columns="body")
    start = reader.initialOffset()
    compact(root)
    trim(root)
    found = recover(open_root(root))
    begins = found.last_position
    table = state_table(found.state, segment=found.segment, history_start=begins)
    write_deltalake(str(root / "state"), table, mode="overwrite")
    DeltaTable(str(root / "history")).delete(f"position < {begins} AND position > 4")
    end = reader.latestOffset(start, ALL)
    with pytest.raises(InvalidRequest, match=f"the first that is left is {begins}: set failOnDa"):
        rows(reader, start, end)
    with pytest.raises(InvalidRequest, match=f"records 2 to .* gone.* left is {begins}"):
        stream(root, startingPosition="2").initialOffset()
    lenient = stream(root, columns="body", failOnDataLoss="false")
    assert [row["body"] for row in rows(lenient, start, end)] == [b"3"]
    assert stream(root).initialOffset()["position"] == begins - 1


def test_a_replica_and_then_the_promoted_one_carry_on_the_stream(
    root: Path, tmp_path: Path
) -> None:
    reader = stream(root, columns="body")
    start = reader.initialOffset()
    compact(root)
    trim(root)
    enqueue(root, b"4")
    replica = tmp_path / "replica"
    whole = image_with_a_whole_journal(root, tmp_path)
    replica_of(open_root(whole), replica)
    end = reader.latestOffset(start, ALL)
    of_replica = stream(replica, columns="body")
    assert of_replica.latestOffset(end, ALL) is end
    promote(replica, primary=whole)
    enqueue(replica, b"5")
    assert bodies(stream(replica, columns="body"), end) == [b"5"]


def test_what_a_promoted_replica_lacks_is_told_and_what_took_its_place_is_read(
    root: Path, tmp_path: Path
) -> None:
    whole = image_with_a_whole_journal(root, tmp_path)
    replica_of(open_root(whole), tmp_path / "replica")
    copied = recover(open_root(whole)).last_position
    enqueue(whole, b"lost", b"lost, too")
    reader = stream(whole, columns="body")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    promote(tmp_path / "replica", primary=whole, accept_loss=True)
    strict = stream(tmp_path / "replica", columns="body")
    lenient = stream(tmp_path / "replica", columns="body", failOnDataLoss="false")
    with pytest.raises(InvalidRequest, match=f"ends with record {copied}, .* {copied + 1} on are"):
        strict.latestOffset(end, ALL)
    assert lenient.latestOffset(end, ALL) is end
    enqueue(tmp_path / "replica", b"new", b"and more", b"than there were")
    with pytest.raises(InvalidRequest, match=f"other records from position {copied + 1} on than"):
        strict.latestOffset(end, ALL)
    assert bodies(lenient, end) == [b"new", b"and more", b"than there were"]


def image_with_a_whole_journal(root: Path, tmp_path: Path) -> Path:
    """A copy of a root whose journal has every record, as the helper that makes replicas wants."""
    image = Path(shutil.copytree(root, tmp_path / "image", ignore=shutil.ignore_patterns("*.sock")))
    there = DeltaTable(str(image / "journal")).to_pyarrow_table()
    least = min(there["position"].to_pylist())
    old = DeltaTable(str(image / "history")).to_pyarrow_table()
    old = old.filter([position < least for position in old["position"].to_pylist()])
    write_deltalake(str(image / "journal"), old.cast(there.schema), mode="append")
    return image


def test_a_table_that_is_gone_is_an_error_and_no_end(root: Path) -> None:
    reader = stream(root)
    start = reader.initialOffset()
    shutil.rmtree(root / "journal")
    with pytest.raises(StoreError):
        reader.latestOffset(start, ALL)
