"""No SQL that somebody types changes or runs anything, or reads more than the root's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.views import message_choice, permitted_sql, views
from sparkstore.views.spark_tables import delta_name
from tests.support.spark import grammar
from tests.support.spark.statements import (
    ANSWERED,
    CHANGES,
    DELTA_STATEMENTS,
    SCRIPTS,
    STATEMENTS,
)

NOT_FUNCTIONS = {
    "java_method", "reflect", "try_reflect",  # call Java
    "from_avro", "to_avro", "schema_of_avro",  # load classes
    "from_protobuf", "to_protobuf",  # read a descriptor by its path
    "table_changes", "table_changes_by_path",  # read a table by its path
    "python_worker_logs",  # what other programs wrote
    # Fetch what a document names, by its document type, or a schema by an option:
    "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long",
    "xpath_number", "xpath_short", "xpath_string", "from_xml", "schema_of_xml",
}  # fmt: skip
"""Functions of Spark and Delta that do more than to compute, and why."""


@pytest.fixture(scope="module")
def outside(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is not the root's: a table `t`, another root, a file, and the journal."""
    folder = tmp_path_factory.mktemp("outside")
    spark.range(3).coalesce(1).write.format("delta").save(str(folder / "t"))
    (folder / "secret").write_text("s3cret\n")
    (folder / "kept").mkdir()
    (folder / "kept" / "file").write_text("kept\n")
    open_or_create_root(folder / "other")
    return folder


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession, module_root: Root) -> None:
    views.register(spark, module_root)


@pytest.fixture(scope="module")
def places(module_root: Root, outside: Path) -> dict[str, str]:
    """What stands for the names in statements."""
    return {
        "own": delta_name(module_root.journal),
        "table": delta_name(outside / "t"),
        "folder": str(outside / "kept"),
        "file": str(outside / "secret"),
        "jar": str(outside / "some.jar"),
        "outside": str(outside),
        "root": str(module_root.path).replace("`", "``"),
    }


def all_files(*folders: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file."""
    files = [file for folder in folders for file in folder.rglob("*")]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def session_state(spark: SparkSession) -> list[object]:
    """Whatever a statement could change in a session and its catalog."""
    java: Any = spark._jsparkSession
    return [
        java.conf().getAll().toString(),
        java.sessionState().functionRegistry().listFunction().size(),
        java.sessionState().catalog().listTempViews("global_temp", "*").size(),
        java.sharedState().cacheManager().isEmpty(),
        spark._jsc.sc().listJars().size(),
        spark.sql("SHOW DATABASES").collect(),
        spark.sql("SHOW TABLES").collect(),
        spark.catalog.currentDatabase(),
        spark.table("queues").columns,
    ]


def is_answered(spark: SparkSession, root: Root, statement: str) -> bool:
    """Whether a statement passes; what it answers is fetched."""
    try:
        views.ask(spark, root, statement).collect()
    except (InvalidRequest, ParseException):
        return False
    return True


def test_the_samples_are_of_every_kind_that_the_grammars_have(spark: SparkSession) -> None:
    rules = ("DmlStatementNoWith", "InsertInto", "SetResetStatement", "StreamRelationPrimary")
    has = grammar.kinds(spark, grammar.SPARK, *rules)
    reads = grammar.kinds(spark, grammar.SPARK, "QuerySpecification", "RelationPrimary")
    assert set(STATEMENTS) == grammar.kinds(spark, grammar.SPARK, "Statement")
    assert has <= set(CHANGES) <= has | reads
    assert set(SCRIPTS) == grammar.parts(spark, grammar.SPARK, "CompoundStatement")
    assert set(DELTA_STATEMENTS) == grammar.kinds(spark, grammar.DELTA, "Statement")


@pytest.mark.parametrize("samples", [STATEMENTS, CHANGES, SCRIPTS, DELTA_STATEMENTS])
def test_a_statement_of_each_kind_is_refused_or_changes_nothing(
    spark: SparkSession,
    module_root: Root,
    outside: Path,
    places: dict[str, str],
    samples: dict[str, str],
) -> None:
    files, state = all_files(outside, module_root.path), session_state(spark)
    answered = set()
    for kind, sample in samples.items():
        statement = sample.format(**places)
        assert kind in grammar.labels(spark, statement), statement
        if is_answered(spark, module_root, statement):
            answered.add(kind)
        is_query = kind in {"StatementDefault", "PassThrough"}
        for before in ("EXPLAIN ", "DESCRIBE QUERY ", "WITH b AS (SELECT 1) "):
            assert is_answered(spark, module_root, before + statement) == is_query, statement
        for predicate in (f"({statement})", f"true) {statement}", f"EXISTS ({statement})"):
            with pytest.raises(InvalidRequest):
                message_choice.condition(spark, predicate)
        assert all_files(outside, module_root.path) == files, statement
    assert answered == ANSWERED & set(samples)
    assert session_state(spark) == state


def test_every_function_is_one_that_computes_or_is_left_out_for_a_reason(
    spark: SparkSession,
) -> None:
    state: Any = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
    registries = (state.functionRegistry(), state.tableFunctionRegistry())
    names = "\n".join(each.listFunction().mkString("\n") for each in registries).split("\n")
    found = {name.removeprefix("system.builtin.") for name in names}
    found -= permitted_sql.OURS | permitted_sql.OF_VIEWS
    assert found == permitted_sql.FUNCTIONS | NOT_FUNCTIONS
    assert not permitted_sql.FUNCTIONS & NOT_FUNCTIONS


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE DIRECTORY '{root}/journal' USING text SELECT 'x'",
        "WITH a AS (SELECT 'x') INSERT OVERWRITE DIRECTORY '{folder}' USING text SELECT * FROM a",
        "FROM queues INSERT OVERWRITE DIRECTORY '{folder}' USING text SELECT queue",
        "FROM queues INSERT OVERWRITE DIRECTORY '{folder}' USING text SELECT queue"
        " INSERT OVERWRITE DIRECTORY '{folder}2' USING text SELECT queue",
        "INSERT OVERWRITE DIRECTORY '{folder}' USING text"
        " SELECT * FROM IDENTIFIER('tex' || 't.`{file}`')",
        "EXPLAIN INSERT OVERWRITE DIRECTORY '{folder}' USING text SELECT 'x'",
        "EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY ''{folder}'' USING text SELECT 1'",
        "SELECT * FROM (FROM queues INSERT INTO {table} SELECT 1)",
        "SELECT 1 |> INSERT INTO {table}",
        "CREATE TABLE attacked USING text LOCATION '{folder}' AS SELECT 'x'",
    ],
)
def test_no_folder_is_written(
    spark: SparkSession,
    module_root: Root,
    outside: Path,
    places: dict[str, str],
    statement: str,
) -> None:
    files = all_files(outside, module_root.path)
    assert not is_answered(spark, module_root, statement.format(**places))
    assert all_files(outside, module_root.path) == files


@pytest.mark.parametrize(
    "statement",
    [
        "DESCRIBE QUERY SELECT * FROM csv.`{file}`",
        "DESCRIBE TABLE csv.`{file}`",
        "DESCRIBE {table}",
        "DESCRIBE {table} id",
        "SHOW COLUMNS IN {table}",
        "EXPLAIN FORMATTED TABLE csv.`{file}`",
        "SELECT * FROM delta.`{root}/link/journal`",
        "SELECT * FROM delta.`{outside}/inside/../journal`",
        "SELECT * FROM delta.`{root}`",
        "SELECT * FROM delta.`{root}/wal`",
        "SELECT * FROM delta.`/{root}/journal`",
        "SELECT * FROM parquet.`{root}/journal`",
        "SELECT * FROM binaryFile.`{root}/root.json`",
        "SELECT * FROM delta.`{root}/journal` WITH (path = '{outside}/t')",
        "SELECT * FROM delta.`{root}/journal@v0`",
        "SELECT * FROM (VALUES (1)) t, LATERAL (SELECT * FROM csv.`{file}`)",
        "SELECT * FROM queues |> UNION ALL TABLE csv.`{file}`",
        "SELECT sum(1) OVER w WINDOW w AS (ORDER BY (SELECT max(_c0) FROM csv.`{file}`))",
        "SELECT * FROM {own} VERSION AS OF (SELECT max(id) FROM {table})",
        "WITH t AS (SELECT 1), u AS (SELECT * FROM csv.`{file}`) SELECT * FROM t",
        "SELECT * FROM IDENTIFIER('csv.' || '`{file}`')",
        "SELECT * FROM spark_catalog.default.queues",
        "SELECT * FROM the_programs",
        "SELECT * FROM (SELECT 1) the_programs JOIN the_programs ON true",
        "DESCRIBE the_programs",
        "SELECT * FROM of_the_catalog",
    ],
)
def test_nothing_else_is_read_by_whichever_name(
    spark: SparkSession,
    module_root: Root,
    outside: Path,
    places: dict[str, str],
    statement: str,
) -> None:
    (module_root.path / "link").symlink_to(outside / "other")
    (outside / "inside").symlink_to(module_root.path / "wal")
    spark.range(3).createOrReplaceTempView("the_programs")
    spark.sql(f"CREATE TABLE IF NOT EXISTS of_the_catalog USING delta LOCATION '{outside}/t'")
    try:
        assert not is_answered(spark, module_root, statement.format(**places))
    finally:
        spark.catalog.dropTempView("the_programs")
        spark.sql("DROP TABLE of_the_catalog")
        (module_root.path / "link").unlink()
        (outside / "inside").unlink()


def test_no_function_is_left_that_does_more_than_to_compute(
    spark: SparkSession, module_root: Root
) -> None:
    for name in NOT_FUNCTIONS:
        with pytest.raises(InvalidRequest, match=name):
            views.ask(spark, module_root, f"SELECT {name}('a', 'b'), * FROM {name}('a')")
        with pytest.raises(InvalidRequest, match=name):
            message_choice.condition(spark, f"queue = {name}('a', 'b')")
    for statement in (
        "SELECT `SYSTEM`.Builtin.`reflect`('a', 'b')",
        "SELECT * FROM reflect('a', 'b')",
        "SELECT 1 FROM (SELECT 1) LATERAL VIEW reflect('a', 'b') t AS x",
        "SELECT sum(1) OVER w WINDOW w AS (ORDER BY reflect('a', 'b'))",
        "SELECT transform(array(1), x -> reflect('a', 'b'))",
        "VALUES (reflect('a', 'b'))",
        "DESCRIBE FUNCTION reflect",
    ):
        with pytest.raises(InvalidRequest, match="reflect"):
            views.ask(spark, module_root, statement)


def test_the_environment_is_not_put_into_the_text(spark: SparkSession, module_root: Root) -> None:
    text = "${env:HOME}${system:user.home}${spark.app.id}"
    assert views.ask(spark, module_root, f"SELECT '{text}'").collect() == [(text,)]
    assert views.ask(spark, module_root, "DESC SELECT '${env:HOME}'").first()[0] == "${env:HOME}"
    assert text in str(message_choice.condition(spark, f"subject = '{text}'"))


def test_a_query_from_python_passes_the_same_gate(spark: SparkSession, module_root: Root) -> None:
    with pytest.raises(InvalidRequest, match="only queries"):
        views.sql(spark, module_root, "DROP VIEW queues")
    said = {"text": "${env:HOME}'"}
    assert views.sql(spark, module_root, "SELECT {text}", said).collect() == [(said["text"],)]


def test_what_was_answered_is_a_frame_of_the_callers_session(
    spark: SparkSession, module_root: Root
) -> None:
    views.ask(spark, module_root, "SELECT 7 AS x").createOrReplaceTempView("answered")
    assert spark.table("answered").collect() == [(7,)]
    spark.catalog.dropTempView("answered")
    assert spark.sql("SELECT typeof(xpath('<a/>', 'a'))").collect() == [("array<string>",)]


def test_the_roots_tables_have_their_names_by_whichever_links(
    spark: SparkSession, module_root: Root, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(module_root.path)
    by_link = tmp_path / "link" / "journal"
    assert is_answered(spark, module_root, f"SELECT 1 FROM {delta_name(by_link)}")


QUERIES = """
    SELECT DISTINCT id FROM range(3)
    TABLE bindings
    (VALUES (1, 2), (3, 4))
    FROM range(3) SELECT id SELECT id + 1
    SELECT id FROM range(3) EXCEPT SELECT 1 INTERSECT SELECT 2 UNION ALL SELECT 3
    SELECT * FROM range(3) a JOIN range(4) b USING (id) CROSS JOIN range(1) c
    SELECT * FROM range(3) a LEFT ANTI JOIN range(4) b ON a.id = b.id
    SELECT * FROM range(3) a, LATERAL (SELECT a.id + 1), LATERAL explode(array(1))
    SELECT x FROM range(3) LATERAL VIEW OUTER explode(array(id)) t AS x
    SELECT max(id) FILTER (WHERE id > 1), any_value(id), first(id) FROM range(3) HAVING true
    SELECT id, grouping_id() FROM range(3) GROUP BY ROLLUP(id), GROUPING SETS ((id), ())
    SELECT id, sum(id) FROM range(3) GROUP BY ALL ORDER BY ALL
    SELECT id, row_number() OVER (PARTITION BY id ORDER BY id) r FROM range(3) QUALIFY r = 1
    SELECT sum(id) OVER w FROM range(3) WINDOW w AS (ORDER BY id ROWS 1 PRECEDING)
    SELECT lag(id) IGNORE NULLS OVER (ORDER BY id) FROM range(3) LIMIT 1 OFFSET 1
    SELECT * FROM (VALUES (1)) TABLESAMPLE (10 ROWS) DISTRIBUTE BY 1 SORT BY 1 LIMIT ALL
    SELECT * FROM (SELECT id, id % 2 AS k FROM range(3)) PIVOT (sum(id) FOR k IN (0, 1))
    SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR n IN (a, b))
    SELECT /*+ BROADCAST(a), COALESCE(1), REBALANCE */ * FROM range(3) a
    WITH a(y) AS (WITH b AS (SELECT 1) TABLE b) SELECT z FROM A AS t(z)
    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) TABLE r
    SELECT (SELECT max(id) FROM range(3)), EXISTS (SELECT 1), 1 IN (SELECT 1), 1 IN (1, 2)
    SELECT CASE WHEN 1 = 1 THEN 2 END, CASE 1 WHEN 1 THEN 2 ELSE 3 END, (1, 2), try_cast('a' AS int)
    SELECT * EXCEPT (id), a.*, struct(*) FROM range(3) a
    SELECT parse_json('{"a": [1]}'):a[0]::int, CAST(1 AS string) COLLATE UTF8_LCASE
    SELECT extract(YEAR FROM now()), current_date, date_add(DAY, 1, now()), INTERVAL 1 DAY
    SELECT trim(BOTH 'x' FROM 'xax'), overlay('abc' PLACING 'x' FROM 1), position('a' IN 'ba')
    SELECT 'a' LIKE ANY ('b', 'c'), 'a' RLIKE 'b', 1 BETWEEN 0 AND 2, NOT true OR 1 < 2
    SELECT listagg(id, ',') WITHIN GROUP (ORDER BY id), aggregate(array(1), 0, (a, x) -> a + x)
        FROM range(3)
    FROM range(3) |> WHERE id > 1 |> EXTEND id + 1 AS d |> SET d = 1 |> DROP d |> AS q
        |> AGGREGATE sum(id) AS s GROUP BY id |> ORDER BY s |> LIMIT 1 |> UNION ALL VALUES (1, 2)
    SELECT window(now(), '1 hour'), inline(array(struct(1, 2)))
    SELECT a.b, a['b'], map('k', 1)['k'], array(1)[0] FROM (SELECT named_struct('b', 1) AS a)
    SELECT -1, ~1, 1 | 2 & 3 ^ 4, 1 << 2, 'a' || 'b', 7 div 2, 7 % 2, X'00', 1.5BD, date'2026-01-02'
    SELECT * FROM stack(2, 1, 2), sql_keywords()
    SELECT * FROM IDENTIFIER('bindings')
    SELECT DISTINCT system.builtin.upper('a'), builtin.lower('A'), UPPER('a')
    DESCRIBE bindings queue
    DESCRIBE EXTENDED {own}
    DESCRIBE {own} position
    DESC SELECT 1
    SHOW COLUMNS IN {own}
    SHOW FUNCTIONS LIKE 'up*'
    DESCRIBE FUNCTION EXTENDED upper
    EXPLAIN CODEGEN SELECT 1
    EXPLAIN COST SELECT * FROM {own} VERSION AS OF 0
"""
"""Whatever the grammar has for those who only ask."""


def test_a_query_of_every_form_passes(
    spark: SparkSession, module_root: Root, places: dict[str, str]
) -> None:
    lines = QUERIES.replace("{own}", places["own"]).replace("\n        ", " ").strip().split("\n")
    for line in lines:
        views.ask(spark, module_root, line)
    used = set().union(*(grammar.labels(spark, line) for line in lines))
    rules = ("QueryPrimary", "QueryTerm", "BooleanExpression", "ValueExpression", "WindowSpec")
    assert grammar.kinds(spark, grammar.SPARK, *rules) <= used


def test_a_long_expression_is_gone_through(spark: SparkSession, module_root: Root) -> None:
    places = ", ".join(map(str, range(2000)))
    terms = " OR ".join(f"id = {each}" for each in range(300))
    assert is_answered(spark, module_root, f"SELECT 1 FROM range(3) WHERE id IN ({places})")
    assert is_answered(spark, module_root, f"SELECT 1 FROM range(3) WHERE {terms}")
    with pytest.raises(InvalidRequest, match="reflect"):
        message_choice.condition(spark, f"{terms} OR reflect('a', 'b') = 'c'")
