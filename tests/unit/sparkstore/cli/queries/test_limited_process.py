"""One query in a process that the kernel limits: what it answers, refuses, and cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from sparkstore.cli.command_line import main
from sparkstore.cli.queries import limited_process
from sparkstore.cli.queries.limited_process import LimitedQuestion, SeriesQuestion, answered
from sparkstore.core.records import (
    MessageHeader,
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.errors import InvalidRequest
from sparkstore.tables.rows import to_table
from tests.support.histories.histories import History, Layers
from tests.support.roots.roots import build_root
from tests.support.sql_attempts import FILES, FUNCTIONS, STATEMENTS

VALUES = """SELECT 1 AS a, 2 AS a, 9223372036854775807 AS b, 1.5::DECIMAL(5, 2) AS d,
    'x'::BLOB AS x, {'b': [1.5, 'inf'::DOUBLE]} AS s,
    TIMESTAMPTZ '2026-01-02 03:04:05Z' AS t, NULL AS o"""


def question(root: Path, statement: str, most_s: float = 60) -> LimitedQuestion:
    return LimitedQuestion(str(root), statement, limit=2, most_s=most_s)


def run(asked: LimitedQuestion | SeriesQuestion, first: str = "") -> tuple[int, Any]:
    """Ask a process of its own, in which something is done first; its exit code and answer."""
    program = f"import sys; from sparkstore.cli.queries import limited_process as it\n{first}\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "sys.exit(it.main())"],
        input=json.dumps(asked._asdict()).encode(),
        capture_output=True,
        check=False,
    )
    if done.stderr:
        done.check_returncode()
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def test_an_answer_has_its_columns_with_types_and_rows_as_the_command_prints_them(
    template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(answered(question(template, VALUES)))
    main(["sql", str(template), VALUES, "--engine", "duckdb", "--json"])
    assert found["rows"] == [json.loads(capsys.readouterr().out)]
    assert [each["name"] for each in found["columns"]] == [*found["rows"][0]]
    types = {each["name"]: each["type"] for each in found["columns"]}
    assert (types["b"], types["d"], types["x"]) == ("int64", "decimal128(5, 2)", "binary")
    assert found["is_cut"] is False


def test_no_more_rows_come_than_were_asked_for_and_an_empty_answer_has_columns(
    template: Path,
) -> None:
    found = json.loads(answered(question(template, "SELECT * FROM range(5) AS r(id)")))
    assert (found["rows"], found["is_cut"]) == ([{"id": 0}, {"id": 1}], True)
    found = json.loads(answered(question(template, "SELECT queue, depth FROM queues LIMIT 0")))
    assert [each["name"] for each in found["columns"]] == ["queue", "depth"]
    assert found["rows"] == []


def test_every_attempt_to_do_more_is_refused(template: Path, tmp_path: Path) -> None:
    """That nothing of them is done tests/unit/sparkstore/embedded/test_typed_select.py shows."""
    (secret := tmp_path / "secret").write_text("s3cret\n")
    attempts = [
        *STATEMENTS,
        *(f"FROM {each}" for each in FILES),
        *(f"SELECT {each}" for each in FUNCTIONS),
    ]
    for each in attempts:
        with pytest.raises(InvalidRequest) as refused:
            answered(question(template, each.format(secret=secret, root=template)))
        assert "s3cret" not in str(refused.value)
    assert [*tmp_path.iterdir()] == [secret]


def test_an_answer_that_is_too_large_is_refused(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_process, "MOST_ANSWER_BYTES", 1 << 20)
    with pytest.raises(InvalidRequest, match="more than 1 MiB: name fewer columns"):
        answered(question(template, "SELECT repeat('x', 600000) FROM range(2)"))


@pytest.mark.slow
def test_a_query_that_needs_too_much_memory_is_refused(template: Path) -> None:
    asked = question(template, "SELECT list(r) FROM range(400000000) AS t(r)")
    code, told = run(asked, "it.MOST_MEMORY_BYTES = 500 << 20")
    assert (code, told["error"]) == (limited_process.FAILED, "InvalidRequest")
    assert "more than 500 MiB of memory" in told["message"]


@pytest.mark.slow
def test_a_query_that_takes_too_long_ends_with_its_process(template: Path) -> None:
    asked = question(template, "SELECT count(*) FROM range(1000000000000)", most_s=0.2)
    assert run(asked) == (-signal.SIGALRM, None)


@pytest.mark.slow
def test_the_process_writes_no_file(template: Path, tmp_path: Path) -> None:
    """Whatever the engine would do: the kernel refuses it."""
    file = tmp_path / "file"
    write = (
        f"it.limit_this_process(60); import pathlib; pathlib.Path({str(file)!r}).write_text('x')"
    )
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(question(template, "FROM queues"), write)
    assert b"File too large" in failed.value.stderr
    assert file.read_bytes() == b""


@pytest.mark.slow
def test_the_process_yields_to_the_broker(template: Path) -> None:
    """It is slow before the broker is, and where memory is short it ends before the broker does."""
    told = "{'nice': os.nice(0), 'adj': open('/proc/self/oom_score_adj').read().strip()}"
    first = f"import os; it.limit_this_process(60); sys.exit(print(it.json.dumps({told})))"
    lower = min(19, os.nice(0) + 10)  # a worker of pytest has lowered its own
    assert run(question(template, "FROM queues"), first)[1] == {"nice": lower, "adj": "1000"}


@pytest.mark.slow
def test_without_duckdb_it_says_what_to_install(template: Path) -> None:
    code, told = run(question(template, "FROM queues"), "sys.modules['duckdb'] = None")
    assert (code, told["error"]) == (limited_process.FAILED, "Unavailable")
    assert told["message"] == "SQL needs duckdb, which pip install sparkstore brings: install it"


def test_a_series_of_a_queue_with_many_new_records_fits_into_the_memory(tmp_path: Path) -> None:
    """A wide row for each message that came or went would not: it takes 300 MiB more."""
    count = 100_000
    header = MessageHeader("raw", b"", header_bytes=0, body_bytes=0)
    records = [opened(1, "w"), ids_reserved(1, 2 * count), queue_created(1, "q", "{}")]
    records += [message_enqueued(n, "q", n, header, b"") for n in range(1, count + 1)]
    records += [message_dequeued(count + n, "q", n, "c") for n in range(1, count)]
    root = build_root(tmp_path / "root", Layers(History([]), 0, 0, 1, 1000))
    table = to_table(records, first_position=1, epoch=1, segment=0)
    write_deltalake(str(root.journal), table, mode="append")
    asked = SeriesQuestion(str(root.path), "q", (1, 2 * count + 1, count), most_s=60)
    code, found = run(asked, "it.MOST_MEMORY_BYTES = 400 << 20")
    assert code == 0, found
    assert [item["depth"] for item in found["items"]] == [count, 1]
    assert found["left_out"] == []
