"""An argument of a queue is declared once: lists, checks and schemas follow."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import pytest

from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.openapi import openapi_of
from sparkstore.cli.command_line import main
from sparkstore.core.queue_arguments import ARGUMENTS, QueueArguments
from sparkstore.declared_arguments import AT_ANY_TIME, Argument, declared_arguments


class Toy(NamedTuple):
    depth: Annotated[int | None, Argument("a number", "0.7", 1, 9)] = None
    is_hot: Annotated[bool, Argument("a switch", "0.7", changes="never")] = False
    way: Annotated[str | None, Argument("a word", "0.7", words=("a", "b"))] = None
    key: Annotated[str | None, Argument("a name", "0.7", names="a key", most=5)] = None


def test_what_a_field_declares_is_listed_described_and_bounded() -> None:
    depth, is_hot, way, key = declared_arguments(Toy).values()
    assert [each.kind for each in (depth, is_hot, way, key)] == [int, bool, str, str]
    assert (depth.may_be, depth.listed) == (
        "an integer from 1 to 9",
        "a number (an integer from 1)",
    )
    assert (is_hot.may_be, is_hot.changes, way.changes) == ("true or false", "never", AT_ANY_TIME)
    assert (way.may_be, way.schema["enum"]) == ('"a" or "b"', ["a", "b", None])
    assert (key.may_be, key.schema["maxLength"]) == ("the name of a key", 5)
    assert depth.schema == {
        "type": ["integer", "null"], "minimum": 1, "maximum": 9, "description": "a number",
    }  # fmt: skip


def test_each_argument_of_a_queue_is_typed_in_openapi() -> None:
    schemas = openapi_of(ENDPOINTS, "1")["components"]["schemas"]
    for model, field in (
        ("QueueCreation", "arguments"),
        ("QueueAlterationOrder", "set"),
        ("PolicyCreation", "arguments"),
        ("QueueRow", "arguments"),
    ):
        assert schemas[model]["properties"][field]["properties"] == {
            name: argument.schema for name, argument in ARGUMENTS.items()
        }


@pytest.mark.parametrize("command", ["queue create", "queue alter", "policy set"])
def test_the_help_of_a_command_lists_each_argument(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name in QueueArguments._fields:
        assert f"{name}: {ARGUMENTS[name].listed}" in shown
