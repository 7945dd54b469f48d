"""`sparkstore sql`: what is printed, and what is told on standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.cli.queries.duckdb_sql import answer
from sparkstore.errors import InvalidRequest
from sparkstore.exit_codes import ExitCode
from sparkstore.tables.root import Root, open_root
from tests.support.bare_install import bare_program
from tests.support.roots.typed_messages import typed_root

BODY = '{"a": [1, 2.5, null, "0x01", "1970-01-01T00:00:01.000+00:00"], "3": "ü"}'
ARGUMENTS = "protocol, message_type, body"
FUNCTIONS = {
    "typed_properties(protocol, header)['d'].integer": 301,
    f"readable_body({ARGUMENTS})": BODY,
    f"body_text({ARGUMENTS})": BODY,
    f"body_as({ARGUMENTS}, '`3` STRING')": {"3": "ü"},
    f"body_as({ARGUMENTS}, queue_schema('q'))['3']": "ü",
    "queue_schema('q')": "a ARRAY<STRING>, `3` STRING",
}
"""Each documented function, and what it tells of the first message of `typed_root`."""
ASKED = [f"SELECT {call} AS told FROM messages WHERE message_id = 1" for call in FUNCTIONS]
BARE = """
import sys
import sparkstore
from sparkstore.cli.command_line import main
root, *statements = sys.argv[1:]
for statement in statements:
    assert main(["sql", root, "--engine", "duckdb", "--json", statement]) == 0
for statement in statements:
    print(sparkstore.query(root, statement).column("told").to_pylist())
"""
ALL = """SELECT 1 AS a, 2 AS a, 3 AS a_2, {'b': 4} AS s, 'NaN'::DOUBLE AS n,
    [1.5, 'inf'::DOUBLE] AS l,
    MAP {DATE '2026-01-02': TIMESTAMPTZ '2026-01-02 03:04:05.678901Z'} AS m, 0.00042 AS d,
    NULL AS o, 'x'::BLOB AS b"""


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typed_root(tmp_path_factory.mktemp("typed")).path


def run(*argv: str) -> list[str]:
    """Run Python in a process of its own; the lines of its answer. It notes nothing."""
    command = [sys.executable, *argv]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


@pytest.fixture
def root(template: Path) -> Root:
    """Nobody changes it."""
    return open_root(template)


def ask(root: Root, *argv: str) -> int:
    return main(["sql", str(root.path), *argv])


def test_rows_are_printed_as_a_table_or_as_json(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(root, "SELECT * FROM range(3) AS r(id) ORDER BY id DESC", "--limit", "2") == 0
    told = capsys.readouterr()
    assert told.out.split() == ["id", "--", "2", "1"]
    assert "the first 2 rows are shown, there are more" in told.err
    assert ask(root, "SELECT queue, acquired_by FROM queues ORDER BY queue", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    assert all(isinstance(row["acquired_by"], dict) for row in rows)


def test_every_column_is_told_exactly(root: Root) -> None:
    found = answer(root, ALL)
    assert found.columns == ["a", "a_3", "a_2", "s", "n", "l", "m", "d", "o", "b"]
    (row,) = found.rows
    assert {name: str(value) for name, value in row.items()} == {
        "a": "1",
        "a_3": "2",
        "a_2": "3",
        "s": "{'b': 4}",
        "n": "NaN",
        "l": "[1.5, 'Infinity']",
        "m": str(row["m"]),
        "d": "0.00042",
        "o": "None",
        "b": "b'x'",
    }
    ((day, moment),) = row["m"].items()
    assert (day, moment.isoformat()) == ("2026-01-02", "2026-01-02T03:04:05.678901+00:00")


def test_a_wrong_query_is_a_line_and_an_exit_code(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(root, "SELECT nope FROM queues") == ExitCode.WRONG_CALL
    told = capsys.readouterr().err
    assert '"nope" not found' in told
    assert told.count("\n") == 1


def test_the_views_are_asked_as_of_a_time_and_a_zone_that_is_assumed_is_told(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ("SELECT max(position) AS last FROM message_history", "--json")
    assert ask(root, *query, "--as-of", "position=9") == 0
    assert json.loads(capsys.readouterr().out)["last"] <= 9
    assert ask(root, *query, "--as-of", "2025-01-01 10:00") == ExitCode.WRONG_CALL
    told = capsys.readouterr().err
    assert "is before the first record of this root" in told
    assert told.count("\n") == 1
    moment = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    assert ask(root, *query, "--as-of", moment) == 0
    told = capsys.readouterr()
    assert told.err == f"sparkstore: {moment} has no time zone: UTC is assumed\n"
    assert ask(root, *query, "--as-of", f"{moment}+00:00") == 0
    assert capsys.readouterr() == (told.out, "")


def test_a_value_without_a_form_is_a_wrong_query(root: Root) -> None:
    with pytest.raises(InvalidRequest):
        answer(root, "SELECT TIMESTAMPTZ '12000-01-01 00:00:00Z'")


@pytest.mark.slow
def test_neither_spark_nor_numpy_is_loaded_and_each_type_is_told_without(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys; from sparkstore.cli.command_line import main; code = main(sys.argv[1:]);"
        " sys.exit(code or bool({'numpy', 'pandas', 'py4j', 'pyspark'} & {*sys.modules}))"
    )
    for statement in ("FROM queue_messages ORDER BY ALL", ALL):
        argv = ["sql", str(root.path), "--json", "--engine", "duckdb", statement]
        command = [sys.executable, "-c", program, *argv]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")
        assert main(argv) == 0
        assert run.stdout == capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("asked", range(len(FUNCTIONS)), ids=FUNCTIONS)
def test_the_command_answers_with_each_function(typed: Path, asked: int) -> None:
    """As a user calls it; numpy is installed, and the command hides it."""
    (line,) = run(
        "-m", "sparkstore", "sql", str(typed), "--engine", "duckdb", "--json", ASKED[asked]
    )
    assert json.loads(line) == {"told": [*FUNCTIONS.values()][asked]}


@pytest.mark.slow
def test_the_wheel_alone_has_each_function_by_the_command_and_in_python(typed: Path) -> None:
    lines = run("-c", bare_program(BARE), str(typed), *ASKED)
    values = [*FUNCTIONS.values()]
    assert [json.loads(line)["told"] for line in lines[: len(values)]] == values
    assert lines[len(values) :] == [str([value]) for value in values]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT '\udcff'", "the query is not in UTF-8: write it anew"),
        (f"SELECT body_as({ARGUMENTS}, 'n BIG') FROM messages", "'n BIG' is no schema"),
        (f"SELECT body_as({ARGUMENTS}, queue) FROM messages", "JSON structure must be a constant"),
        ("SELECT queue_schema('nowhere')", "on queue 'nowhere' is a JSON object"),
        ("SELECT typed_properties(1, 2)", "No function matches"),
        ("SELECT typed_properties", '"typed_properties" was not found'),
    ],
)
def test_whatever_duckdb_raises_is_one_line(
    typed: Path, statement: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(typed), "--engine", "duckdb", statement]) == ExitCode.WRONG_CALL
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert why in told.err


@pytest.mark.slow
def test_in_a_folder_that_was_deleted_a_query_is_refused_in_one_line(
    typed: Path, tmp_path: Path
) -> None:
    """DuckDB would abort."""
    program = (
        "import os, sys; from sparkstore.cli.command_line import main; os.rmdir(os.getcwd());"
        " sys.exit(main(sys.argv[1:]))"
    )
    for number, words in enumerate((["sql", "--engine", "duckdb"], ["diff", "--from"])):
        (gone := tmp_path / str(number)).mkdir()
        command = [sys.executable, "-c", program, words[0], str(typed), *words[1:]]
        last = "SELECT 1" if number == 0 else "position=1"
        ended = subprocess.run(
            [*command, last], capture_output=True, text=True, check=False, cwd=gone
        )
        assert ended.returncode == ExitCode.WRONG_CALL
        assert (
            ended.stderr == "sparkstore: the current folder was deleted: change to another (cd /)\n"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "wanted"), [("ascii", r"\xfc\u20ac"), ("latin-1", r"ü\u20ac"), ("utf-8", "ü€")]
)
def test_a_character_that_standard_output_lacks_is_escaped(
    typed: Path, encoding: str, wanted: str
) -> None:
    argv = ["sql", str(typed), "--engine", "duckdb", "SELECT 'ü€' AS told"]
    ended = subprocess.run(
        [sys.executable, "-m", "sparkstore", *argv],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode(encoding).split() == ["told", "----", wanted]
