"""Every engine gives the same rows of every view: names, order, types and values."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from sparkstore.core.records import (
    MessageHeader,
    ids_reserved,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.embedded.answers import answer
from sparkstore.errors import InvalidRequest
from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.reconcile.findings import Finding, write
from sparkstore.tables.root import Root
from sparkstore.views import body_as as body_as_struct
from sparkstore.views import views
from sparkstore.views.views import ALL, LOGS
from tests.support.documents import view_columns
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, Row
from tests.support.histories.seeds import seed
from tests.support.histories.viewed import plain
from tests.support.odd_bodies import SCHEMA, odd_bodies, odd_root
from tests.support.roots.binary_messages import ORDER, described
from tests.support.roots.roots import build_root
from tests.support.roots.typed_messages import typed_root

SEED = seed()
NOW = "oldest_age_s"
"""The one column that says something else a second later."""
ENGINES = ("spark", "local rows", "duckdb")
"""Spark with plans over Delta, with rows that DuckDB computed for it, and DuckDB."""


MICROS = {"type": "long", "logicalType": "timestamp-micros"}


class Told(NamedTuple):
    """Two roots with the same records, and a row in each table of the jobs.

    Attributes:
        cut: State, history and journal have a part each, cut anywhere; some of it is trimmed.
        plain: All records are in the journal, and nothing was ever folded.
    """

    cut: Root
    plain: Root


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Twenty histories in each root: what an engine says never depends on who folded what."""
    chance, folder = random.Random(SEED), tmp_path_factory.mktemp("told")
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(20)])
    layers = drawn_layers(chance, history)
    cut = build_root(folder / "cut", layers)
    job_runs.record(cut, JobRun("1", "compact", datetime.now(UTC), 1.5, "done", {"n": 1}))
    write(spark, cut, "run", [Finding("positions", "error", "journal")])
    plain = build_root(folder / "plain", Layers(history, 0, 0, 1, layers.segment_records))
    for log in LOGS:
        shutil.copytree(cut.table(log), plain.table(log))
    return Told(cut, plain)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param == "duckdb":
        return _by_duckdb
    request.getfixturevalue("many_tasks")
    ask = _by_local_rows if request.param == "local rows" else _by_spark
    return partial(ask, request.getfixturevalue("spark"))


@pytest.mark.slow
@pytest.mark.parametrize("view", ALL)
def test_every_engine_answers_the_same(engine: Engine, told: Told, view: str) -> None:
    """Names and types as documented; rows as of a root where no job ever was."""
    found, wanted = engine(told.cut, view), _by_duckdb(told.plain, view)
    assert found.columns == view_columns()[view]
    assert found.rows == wanted.rows, f"seed {SEED}"


@pytest.mark.slow
def test_every_engine_answers_the_same_as_of_a_position(engine: Engine, told: Told) -> None:
    """Between two folds, and before both; the gate lets what a view is made of pass."""
    state = DeltaTable(str(told.cut.state)).to_pyarrow_table(columns=["part", "position"])
    folded = max(row["position"] or 0 for row in state.to_pylist() if row["part"] == "meta")
    (last,) = answer(told.cut, "SELECT max(position) FROM message_history").table.column(0)
    questions = product(((folded + last.as_py()) // 2, folded // 2 + 1), ("messages", "queues"))
    for position, view in questions:
        at = f"position={position}"
        found, wanted = engine(told.cut, view, at), _by_duckdb(told.plain, view, at)
        assert found.rows == wanted.rows, f"seed {SEED}, {view} as of {position}"


@pytest.mark.slow
def test_both_engines_and_a_frame_read_bodies_in_avro_and_protobuf(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One message of each; a body of another kind is null. The schema in SQL is Avro's JSON."""
    pytest.importorskip("fastavro")
    pytest.importorskip("google.protobuf")
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": MICROS}]
    avro = json.dumps({"type": "record", "name": "R", "doc": "O'Brien", "fields": fields})
    bodies = [b"\x06" + b"\x80\x89\x7a", b"\x08\x03\x12\x01x", b"\xff"]
    records = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
    header = MessageHeader("amqp-1.0", b"h", header_bytes=1, body_bytes=3)
    records += [message_enqueued(2, "q", n, header, body) for n, body in enumerate(bodies, 1)]
    numbered = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    root = build_root(tmp_path / "root", Layers(History(numbered), 0, 0, 1, 1000))
    quoted = {"duckdb": avro.replace("'", "''"), "spark": avro.replace("'", "\\'")}
    query = "SELECT message_id, body_as(protocol, message_type, body, '{}') AS b FROM messages"
    here = answer(root, query.format(quoted["duckdb"])).table
    session = spark.newSession()
    there = views.sql(session, root, query.format(quoted["spark"])).toArrow()
    assert values(here) == values(there)
    assert here.sort_by("message_id").to_pylist()[0]["b"]["id"] == 3
    (tmp_path / "o.avsc").write_text(avro)
    (tmp_path / "o.desc").write_bytes(described())
    frame = session.table("messages").orderBy("message_id")
    by_avro = body_as_struct(tmp_path / "o.avsc").getField("id").alias("a")
    by_proto = body_as_struct(tmp_path / "o.desc", message=ORDER)
    found = frame.select(by_avro, by_proto.getField("id").alias("b"), by_proto.getField("sku"))
    assert [tuple(row) for row in found.collect()] == [(3, None, None), (None, 3, "x"), (None,) * 3]


class View(NamedTuple):
    """All of a view, as one engine tells it.

    Attributes:
        columns: Names in their order, with Spark's names of their types.
        rows: A JSON object for each, sorted: no engine promises an order.
    """

    columns: list[tuple[str, str]]
    rows: list[str]


class Engine(Protocol):
    """Reads a whole view of a root."""

    def __call__(self, root: Root, view: str, as_of: str | None = None) -> View: ...


def _by_duckdb(root: Root, view: str, as_of: str | None = None) -> View:
    table = answer(root, f"FROM {view}", as_of=as_of).table
    types = (from_arrow_type(field.type).simpleString() for field in table.schema)
    return View([*zip(table.schema.names, types, strict=True)], values(table))


def _by_spark(spark: SparkSession, root: Root, view: str, as_of: str | None = None) -> View:
    session = spark.newSession()
    views.register(session, root, (view,), as_of=as_of, local_rows=0)
    return _read(views.ask(session, root, f"SELECT * FROM {view}"))


def _read(frame: DataFrame) -> View:
    columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    return View(columns, values(frame.toArrow()))


def _by_local_rows(spark: SparkSession, root: Root, view: str, as_of: str | None = None) -> View:
    return _read(views.sql(spark.newSession(), root, f"SELECT * FROM {view}", as_of=as_of))


@pytest.mark.slow
def test_both_engines_tell_the_types_of_properties_and_the_values_of_bodies(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = typed_root(tmp_path)
    query = (
        "SELECT message_id, typed_properties(protocol, header) AS properties,"
        " readable_body(protocol, message_type, body) AS body FROM messages"
        " WHERE typed_properties(protocol, header)['d'].number > 300"
    )
    here, there = answer(root, query).table, views.sql(spark.newSession(), root, query).toArrow()
    assert here.num_rows == 2
    assert values(here) == values(there)


@pytest.mark.slow
def test_both_engines_and_a_frame_read_bodies_by_one_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The schema is inferred in the query, is text, and is a file; a literal is no call."""
    root = typed_root(tmp_path)
    call = "body_as(protocol, message_type, body, {})"
    query = (
        f"SELECT message_id, body_text(protocol, message_type, body) AS text, {call}.a AS a,"
        f" {call}.`3` AS n, 'body_as(1)' AS kept FROM messages"
    ).format("queue_schema('q')", "'a STRING, `3` STRING'")
    here = answer(root, query.replace("`3` AS", '"3" AS')).table
    session = spark.newSession()
    there = views.sql(session, root, query).toArrow()
    assert values(here) == values(there)
    found = {row["message_id"]: row for row in here.to_pylist()}
    assert found[1]["a"] == ["1", "2.5", None, "0x01", "1970-01-01T00:00:01.000+00:00"]
    assert [found[1]["n"], found[3]["text"], found[3]["a"]] == ["ü", "bytes", None]
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"3": {"type": "string"}}}')
    frame = session.table("messages").where("message_id = 1").select(body_as_struct(schema))
    assert frame.collect() == [(("ü",),)]
    for wrong, why in (
        (call.format("queue"), "the last argument of body_as is a text"),
        ("queue_schema('nowhere')", "'nowhere' is a JSON object: give body_as a schema"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            views.sql(session, root, f"SELECT {wrong} FROM queue_messages")


@pytest.mark.slow
def test_every_engine_reads_odd_bodies_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """JSON that readers understand in different ways, and what is nearly JSON."""
    chance = random.Random(SEED)
    bodies = odd_bodies(chance, 300)
    root = odd_root(tmp_path / "odd", bodies)
    call = f"body_as(protocol, message_type, body, '{SCHEMA}')"
    query = f"SELECT message_id, {call} AS b FROM messages ORDER BY message_id"
    here = answer(root, query).table.to_pylist()
    session = spark.newSession()
    there = views.sql(session, root, query).toArrow().to_pylist()
    frame = session.table("messages").orderBy("message_id")
    by_frame = frame.select("message_id", body_as_struct(SCHEMA).alias("b")).toArrow().to_pylist()
    for text, mine, theirs, third in zip(bodies, here, there, by_frame, strict=True):
        assert plain_row(mine) == plain_row(theirs) == plain_row(third), (
            f"seed {SEED}: {text[:200]}"
        )
    assert sum(row["b"] is None for row in here) < len(here) / 2


def plain_row(row: dict[str, Any]) -> str:
    body = row["b"]
    return json.dumps(
        body and {**body, "m": body["m"] and plain(body["m"])}, default=str, sort_keys=True
    )


def values(table: pa.Table) -> list[str]:
    """The rows as text, sorted."""
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    return _sorted(
        {name: plain(value) if name in maps else value for name, value in row.items()}
        for row in table.to_pylist()
    )


def _sorted(rows: Iterable[dict[str, Any]]) -> list[str]:
    kept = ({name: value for name, value in row.items() if name != NOW} for row in rows)
    return sorted(json.dumps(row, default=_text, sort_keys=True) for row in kept)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else bytes(value).hex()
