"""The command `sql`: one SELECT over the views, by DuckDB or Spark, or by a broker at a URL."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import json_lines, print_lines, table
from sparkstore.cli.parsing import add_for_root, add_limit, command, row_limit
from sparkstore.cli.queries.query_result import QueryResult
from sparkstore.cli.target import opened_broker, opened_root
from sparkstore.extras import check_spark

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.recovery.point_in_time import PointInTime
    from sparkstore.tables.root import Root

SQL_ROWS, _MOST_BY_URL = 1_000, 10_000
"""Rows that people see unless they ask for more; a broker's answer has no more of them."""
_WIDTH = 1_000
"""Characters of a cell of an answer: a table is as wide as its longest."""


def add(subparsers: Subparsers) -> None:
    """Add the command `sql` to the command line."""
    parser = command(
        subparsers,
        sql,
        "answer a question with SQL",
        "Views: queues, queue_messages, messages (consumed ones too), message_history, bindings,\n"
        "configuration, members, links, deliveries, transactions, and after a job job_runs and\n"
        "findings.\n"
        "DuckDB answers, in its SQL. --engine spark asks the same views in Spark's SQL, and the\n"
        "root's own tables as delta.`PATH`; it starts a JVM (seconds).\n"
        "A line on standard error says when rows are left out. A query changes nothing, runs no\n"
        "program (TRANSFORM, reflect) and reads no other file. Columns of equal names get\n"
        "numbers: depth, depth_2. A broker at a URL gives 10000 rows at most.\n\n"
        "examples:\n"
        '  sparkstore sql ROOT "SELECT * FROM queues ORDER BY depth DESC"\n'
        "  sparkstore sql ROOT \"SELECT properties['carrier'], count(*) FROM queue_messages"
        ' GROUP BY 1"\n'
        '  sparkstore sql ROOT "SELECT name, source, attached, unsettled FROM links"\n'
        '  sparkstore sql ROOT "SELECT outcome, count(*) FROM messages GROUP BY outcome"\n'
        '  sparkstore sql s3://lake/queues "SELECT * FROM queues"\n'
        '  sparkstore sql ROOT --engine spark "SELECT queue, depth FROM queues"\n'
        "  sparkstore sql ROOT --as-of '2026-11-22 10:00' \"SELECT queue, depth FROM queues\"",
        by_url=True,
    )
    parser.add_argument("statement", help="one SELECT")
    add_for_root(
        parser,
        "--engine",
        choices=("spark", "duckdb"),
        default="duckdb",
        help="who answers, in whose SQL (default duckdb)",
    )
    add_limit(parser, "rows, 0: all (default 1000, with --json all)")
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="every view as it stood then: '2026-11-22 10:00' (UTC if no zone is named), or"
        " position=N",
    )


def sql(arguments: Namespace) -> int:
    """Print the answer to a query."""
    if arguments.url is not None:
        return _sql_by_url(arguments)
    from sparkstore.log.tuning import without

    absent = ("numpy", "pandas") if arguments.engine == "duckdb" else ()
    with without(*absent), opened_root(arguments.root, whole=True) as root:
        return _sql(arguments, root)  # the root is there, before seconds of starting a JVM


def _sql_by_url(arguments: Namespace) -> int:
    limit = row_limit(arguments, SQL_ROWS) or _MOST_BY_URL
    body = {"statement": arguments.statement, "limit": limit, "as_of": arguments.as_of}
    with opened_broker(arguments) as broker:
        answer = broker.ask("POST", "sql", body)
    names, types = ([column[key] for column in answer["columns"]] for key in ("name", "type"))
    result = QueryResult(names, answer["rows"], answer["is_cut"], types)
    _print_answer(arguments, result, limit, f"--limit shows up to {_MOST_BY_URL}")
    return 0


def _sql(arguments: Namespace, root: Root) -> int:
    limit = row_limit(arguments, SQL_ROWS)
    if arguments.as_of is not None:
        check_time(root, arguments.as_of)
    answer = (_by_duckdb if arguments.engine == "duckdb" else _by_spark)(arguments, root, limit)
    _print_answer(arguments, answer, limit, "--limit 0 shows all")
    note_unreplayed(root)
    return 0


def _print_answer(arguments: Namespace, answer: QueryResult, limit: int, for_more: str) -> None:
    """Print the answer of a query, and note what is not shown of it and what shows more."""
    if arguments.json:
        print_lines(json_lines(answer.rows))
    else:
        lines = [*table(answer.rows, answer.columns, width=_WIDTH)]
        print_lines(lines)
        if any("…" in line for line in lines):
            note(f"a value longer than {_WIDTH} characters ends in …: --json shows it whole")
    if answer.is_cut:
        note(f"the first {limit} rows are shown, there are more: {for_more}")


def check_time(root: Root, as_of: str) -> PointInTime:
    """Refuse a time of which there is no answer, before a JVM starts; say if UTC is assumed.

    Raises:
        InvalidRequest: It is none, is in the future, or before history.
    """
    from sparkstore.recovery.point_in_time import has_zone, point_in_time

    point = point_in_time(root, as_of)
    if not has_zone(as_of):
        note(f"{as_of} has no time zone: UTC is assumed")
    return point


def _by_spark(arguments: Namespace, root: Root, limit: int) -> QueryResult:
    check_spark("sql --engine spark", "--engine duckdb")
    from sparkstore.cli.queries.spark_sql import answer_once

    return answer_once(root, arguments.statement, limit, arguments.as_of)


def _by_duckdb(arguments: Namespace, root: Root, limit: int) -> QueryResult:
    from sparkstore.cli.queries.duckdb_sql import answer

    return answer(root, arguments.statement, limit, arguments.as_of)
