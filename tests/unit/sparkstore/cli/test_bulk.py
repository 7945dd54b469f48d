"""How the commands that choose messages are called: the queue is an argument without a name."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.cli.messages import bulk, export, redrive
from sparkstore.tables.root import open_or_create_root

COMMANDS = ("move", "requeue", "purge", "replay", "export", "redrive")
MORE = {"move": ["--to", "late", "--where", "true"], "export": []}
SPELLINGS = (
    ["ROOT", "orders"],
    ["--from", "orders", "ROOT"],
    ["ROOT", "--from=orders"],
    ["ROOT", "--queue", "orders"],
    ["--queue=orders", "ROOT"],
)


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    subparsers = parser.add_subparsers(required=True)
    for add in (bulk.add, redrive.add, export.add):
        add(subparsers)
    return parser.parse_args(bulk.with_queue_as_argument(words))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("spelled", SPELLINGS, ids=" ".join)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_queue_is_understood_however_it_is_given(
    command: str, spelled: list[str], *, is_last: bool
) -> None:
    more = MORE.get(command, ["--where", "true"])
    words = [*more, *spelled] if is_last else [*spelled, *more]
    arguments = parsed([command, *words])
    assert (arguments.root, arguments.queue) == ("ROOT", "orders")
    assert getattr(arguments, "to", None) == ("late" if command == "move" else None)


def test_other_commands_have_options_of_that_name_of_their_own() -> None:
    words = ["serve", "root", "--queue", "orders"]
    assert bulk.with_queue_as_argument(words) == words


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_one_spelling(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "root QUEUE" in shown
    assert "--from" not in shown
    assert "--queue" not in shown


@pytest.mark.parametrize("words", [[], ["--from"], ["--queue"]], ids=" ".join)
def test_a_queue_that_is_not_said_is_a_wrong_call(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_or_create_root(tmp_path / "root")
    with pytest.raises(SystemExit) as ended:
        main(["requeue", str(tmp_path / "root"), "--where", "true", *words])
    assert ended.value.code == 2
    assert "QUEUE" in capsys.readouterr().err
