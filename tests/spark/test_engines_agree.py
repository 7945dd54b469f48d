"""Spark and DuckDB give the same rows of every view: names, order, types and values."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from sparkstore.embedded.answers import answer
from sparkstore.errors import InvalidRequest
from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.reconcile.findings import Finding, write
from sparkstore.sql.queries import VIEWS
from sparkstore.tables.root import Root
from sparkstore.views import body_as as body_as_struct
from sparkstore.views import views
from sparkstore.views.job_tables import LOGS
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.seeds import seed
from tests.support.histories.viewed import plain
from tests.support.roots.roots import build_root
from tests.support.roots.typed_messages import typed_root

SEED = seed()
NOW = "oldest_age_s"
"""The one column that says something else a second later."""


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Twenty histories in one root, cut anywhere, and a row in each table of the jobs."""
    chance = random.Random(SEED)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(20)])
    root = build_root(tmp_path_factory.mktemp("told") / "root", drawn_layers(chance, history))
    job_runs.record(root, JobRun("1", "compact", datetime.now(UTC), 1.5, "done", {"n": 1}))
    write(spark, root, "run", [Finding("positions", "error", "journal")])
    views.register(spark, root)
    return root


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("view", [*VIEWS, *LOGS])
def test_both_engines_answer_the_same(spark: SparkSession, told: Root, view: str) -> None:
    here, there = answer(told, f"FROM {view}").table, spark.table(view).toArrow()
    assert here.schema.names == there.schema.names, f"seed {SEED}"
    types = [from_arrow_type(field.type).simpleString() for field in here.schema]
    assert types == [field.dataType.simpleString() for field in spark.table(view).schema]
    assert values(here) == values(there), f"seed {SEED}"


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_both_engines_answer_the_same_as_of_a_position(spark: SparkSession, told: Root) -> None:
    """Between two folds, and before both; the gate lets what a view is made of pass."""
    (last,) = answer(told, "SELECT max(position) FROM message_history").table.to_pydict().values()
    state = DeltaTable(str(told.state)).to_pyarrow_table(columns=["part", "position"])
    folded = max(row["position"] or 0 for row in state.to_pylist() if row["part"] == "meta")
    for position in ((folded + last[0]) // 2, folded // 2 + 1):
        for view in ("queues", "messages"):
            here = answer(told, f"FROM {view}", as_of=position).table
            query = f"SELECT * FROM {view}"
            there = views.sql(spark.newSession(), told, query, as_of=position).toArrow()
            assert values(here) == values(there), f"seed {SEED}, {view} as of {position}"


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


def values(table: pa.Table) -> list[str]:
    """The rows as text, sorted: no engine promises an order."""
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    rows = []
    for row in table.to_pylist():
        kept = {name: value for name, value in row.items() if name != NOW}
        rows.append({name: plain(v) if name in maps else v for name, v in kept.items()})
    return sorted(json.dumps(row, default=_text, sort_keys=True) for row in rows)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else bytes(value).hex()
