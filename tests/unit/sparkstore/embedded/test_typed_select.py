"""DuckDB answers one SELECT over the views, and refuses all else: attempts of every kind."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sparkstore.embedded.answers import answer
from sparkstore.embedded.duckdb_views import add_views, connect
from sparkstore.embedded.typed_select import FUNCTIONS as LISTED
from sparkstore.embedded.typed_select import check_statement, own_functions
from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root, open_root
from tests.support.documents import view_columns
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

ONE = "hidden AS (SELECT 1 AS a)"
VISIBLE = [
    f"WITH {ONE} FROM hidden",
    f"WITH {ONE} FROM HIDDEN",
    "WITH HIDDEN AS (SELECT 1 AS a) FROM hidden",
    'WITH "hidden" AS (SELECT 1 AS a) FROM "HiDDen"',
    "WITH hidden AS MATERIALIZED (SELECT 1 AS a) FROM hidden",
    f"WITH {ONE}, other AS (FROM hidden) FROM other",
    f"WITH {ONE}, other AS (WITH deep AS (FROM hidden) FROM deep) FROM other",
    f"WITH {ONE} SELECT (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 WHERE EXISTS (FROM hidden)",
    f"WITH {ONE} SELECT 1 UNION ALL FROM hidden",
    f"WITH {ONE} (SELECT 1 EXCEPT FROM hidden) INTERSECT FROM hidden",
    f"WITH {ONE} SELECT 1 ORDER BY (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 UNION ALL SELECT 2 ORDER BY (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 LIMIT (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 UNION ALL SELECT 2 LIMIT (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 LIMIT 1 OFFSET (SELECT a FROM hidden)",
    f"WITH {ONE} SELECT 1 FROM queues, LATERAL (FROM hidden)",
    f"WITH {ONE} SELECT 1 FROM queues JOIN hidden ON (SELECT a FROM hidden) = 1",
    f"WITH {ONE} SELECT sum(1) OVER (ORDER BY (SELECT a FROM hidden))",
    f"WITH {ONE} SELECT sum(1) FILTER (WHERE 1 = (SELECT a FROM hidden))",
    f"WITH {ONE} SELECT list_transform([1], lambda x: (SELECT a FROM hidden))",
    f"WITH {ONE} SELECT DISTINCT ON ((SELECT a FROM hidden)) 1",
    f"WITH {ONE} SELECT 1 GROUP BY (SELECT a FROM hidden) HAVING (SELECT a FROM hidden) = 1",
    f"WITH {ONE} SELECT 1 QUALIFY row_number() OVER () = (SELECT a FROM hidden)",
    f"WITH {ONE} VALUES ((SELECT a FROM hidden))",
    f"WITH {ONE} FROM (SUMMARIZE FROM hidden)",
    f"FROM (WITH {ONE} FROM hidden)",
    f"(WITH {ONE} FROM hidden) ORDER BY (SELECT a FROM hidden)",
    f"FROM queues JOIN (WITH {ONE} FROM hidden) ON true",
    f"SELECT (WITH {ONE} SELECT a FROM hidden)",
    f"EXPLAIN ANALYZE WITH {ONE} FROM hidden",
    "WITH hidden AS (WITH hidden AS (SELECT 1 AS a) FROM hidden) FROM hidden",
    "WITH RECURSIVE hidden(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM hidden WHERE a < 3)"
    " FROM hidden",
    "WITH RECURSIVE hidden(a) AS (SELECT 1 UNION ALL"
    " SELECT a + 1 FROM (WITH deep AS (FROM hidden) FROM deep) WHERE a < 3) FROM hidden",
    f"WITH RECURSIVE {ONE}, r(a) AS (FROM hidden UNION SELECT a FROM r) FROM r, hidden",
    f"WITH {ONE} FROM (WITH RECURSIVE hidden(a) AS (FROM hidden UNION FROM hidden) FROM hidden)",
]
INVISIBLE = [
    "FROM hidden",
    f"SELECT (WITH {ONE} SELECT 1), (SELECT a FROM hidden)",
    f"SELECT (SELECT a FROM hidden), (WITH {ONE} SELECT 1)",
    f"SELECT 1 FROM (WITH {ONE} FROM hidden), hidden",
    f"SELECT 1 FROM hidden JOIN (WITH {ONE} FROM hidden) ON true",
    f"(WITH {ONE} FROM hidden) UNION ALL FROM hidden",
    f"FROM hidden UNION ALL (WITH {ONE} FROM hidden)",
    f"FROM (WITH {ONE} FROM hidden) LIMIT (SELECT count(*) FROM hidden)",
    f"WITH other AS (WITH {ONE} FROM hidden) FROM hidden",
    f"WITH other AS (WITH {ONE} FROM hidden), again AS (FROM hidden) FROM again",
    f"WITH other AS (FROM hidden), {ONE} FROM other",
    "WITH hidden AS (FROM hidden) FROM hidden",
    "WITH RECURSIVE hidden AS (FROM hidden) FROM hidden",
    "WITH RECURSIVE hidden AS (FROM hidden UNION ALL FROM hidden) FROM hidden",
    f"WITH RECURSIVE other AS (FROM hidden), {ONE} FROM other",
    "WITH r AS (WITH RECURSIVE hidden AS (SELECT 1 UNION ALL FROM hidden) FROM hidden) FROM hidden",
    "WITH RECURSIVE r AS (FROM hidden UNION ALL FROM r) FROM r",
    "WITH RECURSIVE r(a) AS ((WITH hidden AS (SELECT 1) FROM hidden) UNION ALL FROM hidden) FROM r",
    f"WITH {ONE} FROM main.hidden",
    f"WITH {ONE} FROM memory.hidden",
    f"WITH {ONE} FROM memory.main.hidden",
    "SELECT 1 FROM queues AS hidden, LATERAL (FROM hidden)",
    "WITH other AS (SELECT 1 AS hidden) FROM other, LATERAL (FROM hidden)",
    "SELECT 1 AS hidden, (SELECT a FROM hidden)",
    "WITH other(hidden) AS (SELECT 1) FROM hidden",
    f"SELECT list_transform([1], lambda hidden: (SELECT a FROM hidden)), (WITH {ONE} SELECT 1)",
    "WITH other AS (SELECT 1) FROM other AS hidden(a), LATERAL (FROM hidden)",
    f"SELECT 1 WHERE EXISTS (WITH {ONE} FROM hidden) AND EXISTS (FROM hidden)",
    'WITH "h\u0130dden" AS (SELECT 1) FROM hidden',
]
"""The name of a table that is there, where a common table expression of it is visible or is not."""
ENGINE_NAMES = [
    *("sqlite_master", "duckdb_databases", "pg_tables", "pg_class", "DuckDB_Views"),
    *("sparkstore_journal", "Sparkstore_State", "duc\u212adb_tables"),
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


def hidden(connection: duckdb.DuckDBPyConnection) -> None:
    """Add what nobody may see, and the one view that may be asked."""
    connection.execute("CREATE TABLE hidden AS SELECT 's3cret' AS a")
    connection.execute("CREATE VIEW queues AS SELECT 'orders' AS queue")


@pytest.mark.parametrize("statement", VISIBLE)
def test_a_visible_expression_is_what_duckdb_reads(statement: str) -> None:
    """The gate and the engine agree on what a name means: nothing of the table is told.

    Some of them DuckDB refuses in its own words, since it has no subqueries there.
    """
    with connect() as connection:
        hidden(connection)
        assert check_statement(connection, statement, ["queues"]).views <= {"queues"}
        try:
            found = str(connection.execute(statement).fetchall())
        except duckdb.Error as reason:
            found = str(reason)
            assert any(word in found for word in ("not supported", "Could not ORDER BY"))
        assert "s3cret" not in found


@pytest.mark.parametrize("statement", INVISIBLE)
def test_the_name_of_an_expression_is_refused_where_it_is_not_visible(statement: str) -> None:
    with connect() as connection:
        hidden(connection)
        with pytest.raises(InvalidRequest, match=r"there is no view (\w+\.)*hidden"):
            check_statement(connection, statement, ["queues"])


@pytest.mark.parametrize("name", ENGINE_NAMES)
@pytest.mark.parametrize(
    "statement",
    [
        'WITH "{0}" AS (SELECT 1) FROM "{0}"',
        'SELECT (WITH "{0}" AS (SELECT 1) SELECT 1), (SELECT sql FROM "{0}")',
        'WITH a AS (WITH RECURSIVE "{0}" AS (SELECT 1 UNION SELECT 1) SELECT 1) FROM a',
    ],
)
def test_no_expression_has_the_name_of_a_table_of_the_engine(
    root: Root, statement: str, name: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"a name of the engine: choose|there is no view"):
        answer(root, statement.format(name))


def test_as_many_expressions_as_duckdb_takes_are_checked(root: Root) -> None:
    names = ", ".join(f"a{n} AS (SELECT {n} AS a)" for n in range(900))
    assert answer(root, f"WITH {names} FROM a899").table.to_pylist() == [{"a": 899}]


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


SOME = {
    "SELECT message_id FROM queue_messages WHERE queue = 'q' ORDER BY position DESC": "body",
    "SELECT count(*), m.QUEUE AS q FROM queue_messages AS m GROUP BY q": "body",
    "SELECT queue FROM (SELECT queue, Body FROM queue_messages)": "subject",
    "SELECT 1 FROM queues JOIN queue_messages USING (queue)": "body",
}
ANY = [
    "FROM queue_messages",
    "SELECT count(*) FROM (SELECT m.* FROM queue_messages AS m)",
    "SELECT COLUMNS('bod.') FROM queue_messages",
    "SELECT #1 FROM queue_messages",
    "SELECT m FROM queue_messages AS m",
    "SELECT count(queue_messages) FROM queue_messages",
    "SELECT queue FROM queue_messages AS m (a, b, c)",
    "SELECT a.queue FROM queue_messages AS a NATURAL JOIN queue_messages",
    "DESCRIBE SELECT queue FROM queue_messages",
]


@pytest.mark.parametrize("statement", [*SOME, *ANY])
def test_the_columns_that_a_query_may_read_are_known_or_are_any(statement: str) -> None:
    with connect() as connection:
        columns = check_statement(connection, statement, ["queues", "queue_messages"]).columns
    if statement in ANY:
        assert columns is None
    else:
        assert columns is not None
        assert "queue" in columns
        assert SOME[statement] not in columns


@pytest.mark.parametrize("call", ["(", "abs(", "-(", "[", "(SELECT "])
def test_a_query_that_is_nested_deep_is_answered_or_refused(root: Root, call: str) -> None:
    """No depth is an error of Python's, or ends the process."""
    end = {"[": "]"}.get(call, ")")
    assert answer(root, f"SELECT {call * 10}1{end * 10}").table.num_rows == 1
    for depth in (300, 900, 5000):
        with suppress(InvalidRequest):
            assert answer(root, f"SELECT {call * depth}1{end * depth}").table.num_rows == 1


def test_each_column_is_a_name_of_sql_or_its_error_says_how_it_is_written() -> None:
    """Every column that the page of the views lists."""
    columns = {(view, name) for view, kinds in view_columns().items() for name, _kind in kinds}
    refused = set()
    with connect() as connection:
        for view, name in columns:
            check_statement(connection, f'SELECT "{name}", v.{name} FROM {view} AS v', [view])
            try:
                check_statement(connection, f"SELECT {name} FROM {view}", [view])
            except InvalidRequest as reason:
                refused.add((name, f'a column of that name is written "{name}"' in str(reason)))
    assert refused == {("at", True), ("to", True), ("check", True)}


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT nope FROM queues", '"nope" not found'),
        ("SELECT * FROM queue", "there is no view queue: there are queues, queue_messages"),
        ("SELECT * FROM delta.`x`", "--engine spark"),
        ("SELECT date_format(now(), 'yyyy')", "there is no function date_format here: "),
        ("SELECT CAST('x' AS INT)", "Could not convert string 'x'"),
        ("SELEKT 1", "syntax error"),
        ("SELECT at, 'to' FROM message_history", 'is written "at"; sparkstore'),
        ("SELECT count(To) FROM messages WHERE check", 'is written "check" or "to"; sparkstore'),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(root: Root, statement: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        answer(root, statement)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "sparkstore sql ROOT --engine spark" in str(refused.value), "over HTTP, too"


def test_the_listed_functions_are_those_of_the_engine_that_is_locked() -> None:
    """`python -m broker_shim.generate` lists those of another DuckDB: read them first."""
    with duckdb.connect() as connection:
        assert (files("sparkstore") / LISTED).read_text().split() == own_functions(connection)
