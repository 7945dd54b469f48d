"""Every command answers on standard output alone, in whatever encoding that has."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.cli import command_line
from sparkstore.cli.command_line import main
from sparkstore.cli.output import escape_what_cannot_be_encoded
from tests.support.stores.controls import Place

QUEUE = "Bücher…🦊"
PATHS = {"ROOT", "DOCUMENT", "BACKUP"}
COMMANDS = (
    "queue create ROOT zweite",
    "queue list ROOT",
    "queue show ROOT QUEUE",
    "queue alter ROOT zweite --set max_depth=9",
    "exchange create ROOT Börse --type topic",
    "exchange list ROOT",
    "binding add ROOT Börse QUEUE --key schlüssel.…",
    "binding list ROOT",
    "binding remove ROOT Börse QUEUE --key schlüssel.…",
    "exchange delete ROOT Börse",
    "policy set ROOT größe --match nichts.# --set max_depth=9",
    "policy list ROOT",
    "policy delete ROOT größe",
    "queues ROOT",
    "browse ROOT QUEUE --body",
    "diff ROOT --from position=1",
    "connections ROOT",
    "transactions ROOT",
    "definitions export ROOT",
    "definitions import ROOT DOCUMENT --dry-run",
    "export ROOT QUEUE --id 1",
    "resubmit ROOT 1 --body näher… --dry-run",
    "move ROOT QUEUE --to zweite --id 1",
    "requeue ROOT QUEUE --id 2",
    "redrive ROOT zweite",
    "operations ROOT",
    "history ROOT 1",
    "purge ROOT QUEUE --id 3",
    "replay ROOT QUEUE --id 3 --dry-run",
    "queue purge ROOT zweite",
    "queue delete ROOT zweite",
    "current ROOT",
    "backup ROOT BACKUP",
    "migrate --check ROOT",
    "verify ROOT",
    "check ROOT",
    "version",
)
"""What can be asked twice: for people and, with `--json`, for a machine."""
ELSEWHERE = {
    "serve": "READY is one line of ASCII, and it logs on standard error",
    "passwd": "tests/unit/broker_shim/security/test_users.py",
    "sql": "tests/spark",
    "compact": "tests/spark",
    "replicate": "tests/spark",
    "promote": "tests/spark, as it needs a replica",
    "reconcile": "tests/spark",
    "undo": "tests/contract/test_undo.py",
    "restore": "tests/contract/test_backup.py",
    "doctor": "tests/unit/sparkstore/cli/test_doctor.py, as it measures the disk",
    "failover": "tests/unit/sparkstore/cli/test_failover.py, as it needs a pair",
    "completion": "a script: ASCII, and no --json",
}


def names(parser: object) -> set[str]:
    """The names of the commands that a parser of `sparkstore` has."""
    actions = parser._actions  # type: ignore[attr-defined]  # argparse has no other list
    return set(next(each.choices for each in actions if each.choices and each.nargs == "A..."))


def test_each_command_is_run_here_or_said_to_be_elsewhere() -> None:
    known = names(command_line._parser({"serve": None, "passwd": None}))  # type: ignore[dict-item]
    assert known == {line.split()[0] for line in COMMANDS} | set(ELSEWHERE)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[None]:
    place = Place(tmp_path / "ROOT", is_served=True)
    place.create(QUEUE)
    for _ in range(4):
        place.put(QUEUE)
    assert place.control, "a broker serves it from now on"
    yield
    place.close()


@pytest.mark.slow
@pytest.mark.usefixtures("served")
def test_what_a_command_prints_is_its_answer_and_a_narrow_encoding_ends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--json` each line is an object; a note would be none."""
    (tmp_path / "DOCUMENT").write_text('{"queues": [{"name": "größe", "vhost": "/"}]}')
    for line in COMMANDS:
        words = [str(tmp_path / word) if word in PATHS else word for word in line.split()]
        words = [QUEUE if word == "QUEUE" else word for word in words]
        for as_json in ([], ["--json"]):
            written = io.BytesIO()
            with monkeypatch.context() as patch, io.TextIOWrapper(written, "ascii") as stdout:
                patch.setattr(sys, "stdout", stdout)
                code = main([*words, *as_json])
                stdout.flush()
                lines = written.getvalue().decode("ascii").splitlines()
            assert code <= 1 + bool(as_json), f"{line}: {capsys.readouterr().err}"
            for each in lines if as_json else ():
                assert isinstance(json.loads(each), dict), line


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [("ascii", r"B\xfccher\u2026"), ("latin-1", "Bücher\\u2026"), ("utf-8", "Bücher…")],
)
def test_a_stream_escapes_what_its_encoding_lacks(encoding: str, printed: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    escape_what_cannot_be_encoded(stream)
    stream.write("Bücher…")
    stream.seek(0)
    assert stream.read() == printed
