"""DuckDB answers one SELECT over the views, and refuses all else: attempts of every kind."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sparkstore.embedded.answers import answer
from sparkstore.embedded.duckdb_views import add_views, connect
from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root, open_root
from tests.support.sql_attempts import FILES, FUNCTIONS, PLACES, STATEMENTS

ANSWERED = [
    "SELECT 1 AS a",
    "FROM queues",
    "VALUES (1)",
    "TABLE queues",
    "DESCRIBE queues",
    "SUMMARIZE queues",
    "EXPLAIN SELECT * FROM queues",
    "EXPLAIN ANALYZE SELECT count(*) FROM queues",
    "SELECT 'COPY queues TO x' AS harmless;",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r",
    "SELECT * FROM range(3), LATERAL unnest([1, 2])",
    "SELECT list_transform([1, 2], lambda x: x + 1), [x * 2 FOR x IN [1, 2]]",
    "SELECT 'a' LIKE 'b', 'a' ~ 'b', 'a' || 'b', 7 // 2, -1, 2 BETWEEN 1 AND 3, 1 IN (1)",
    "SELECT count(*) FILTER (WHERE depth > 0), rank() OVER (ORDER BY 1) FROM queues GROUP BY queue",
    "SELECT date_trunc('hour', enqueued_at), decode(body) FROM queue_messages",
    "SELECT queue.upper(), random() FROM QUEUES",
    "SELECT get_json_object('{\"a\": 1}', '$.a'), size([1]), unix_micros(now())",
    'SELECT "at" FROM message_history',
]


@pytest.fixture
def root(template: Path) -> Root:
    """Nobody changes it."""
    return open_root(template)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("s3cret\n")
    return path


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_is_not_one_select_is_refused_and_writes_nothing(
    root: Root, secret: Path, statement: str
) -> None:
    before = sorted(secret.parent.rglob("*"))
    with pytest.raises(InvalidRequest, match=r"only one SELECT|Error"):
        answer(root, statement.format(secret=secret))
    assert sorted(secret.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("place", "relation"),
    [*product(PLACES[:1], FILES), *product(PLACES[1:], ["read_text('{secret}')", "'{secret}'"])],
)
def test_what_is_no_view_is_refused_wherever_a_query_names_it(
    root: Root, secret: Path, place: str, relation: str
) -> None:
    secrets_in_python = pa.table({"a": ["s3cret"]})
    assert secrets_in_python.num_rows
    with pytest.raises(InvalidRequest) as refused:
        answer(root, place.format(relation.format(secret=secret, root=root.path)))
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("call", FUNCTIONS)
@pytest.mark.parametrize("place", ["SELECT {}", "FROM queues ORDER BY {}", "SELECT lower({})"])
def test_a_function_of_more_than_its_arguments_is_refused(
    root: Root, call: str, place: str
) -> None:
    with pytest.raises(InvalidRequest, match="there is no function"):
        answer(root, place.format(call))


@pytest.mark.parametrize("statement", ANSWERED)
def test_a_query_of_any_form_is_answered(root: Root, statement: str) -> None:
    assert answer(root, statement).table.num_columns


def test_behind_the_gate_the_connection_itself_reaches_nothing(root: Root, secret: Path) -> None:
    """Whatever got past it: no file, no variable of ours, no extension, no setting."""
    in_python = pa.table({"a": [1]})
    with connect() as connection:
        add_views(connection, root, ["queues"])
        for attempt in (
            f"SELECT * FROM read_text('{secret}')",
            f"SELECT * FROM '{secret}.parquet'",
            f"COPY (SELECT 1) TO '{secret}.out'",
            f"ATTACH '{secret}.db'",
            "SELECT * FROM in_python",
            "LOAD httpfs",
            "SET lock_configuration = false",
            "SET enable_external_access = true",
            "SET python_enable_replacements = true",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(attempt).fetchall()
    assert in_python.num_rows
    assert [*secret.parent.iterdir()] == [secret]


@pytest.mark.parametrize("call", ["(", "abs(", "-(", "[", "(SELECT "])
def test_a_query_that_is_nested_deep_is_answered_or_refused(root: Root, call: str) -> None:
    """No depth is an error of Python's, or ends the process."""
    end = {"[": "]"}.get(call, ")")
    assert answer(root, f"SELECT {call * 10}1{end * 10}").table.num_rows == 1
    for depth in (300, 900, 5000):
        with suppress(InvalidRequest):
            assert answer(root, f"SELECT {call * depth}1{end * depth}").table.num_rows == 1


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT nope FROM queues", '"nope" not found'),
        ("SELECT * FROM queue", "there is no view queue: there are queues, queue_messages"),
        ("SELECT * FROM delta.`x`", "--engine spark"),
        ("SELECT date_format(now(), 'yyyy')", "there is no function date_format here: "),
        ("SELECT CAST('x' AS INT)", "Could not convert string 'x'"),
        ("SELEKT 1", "syntax error"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(root: Root, statement: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        answer(root, statement)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "sparkstore sql ROOT --engine spark" in str(refused.value), "over HTTP, too"
