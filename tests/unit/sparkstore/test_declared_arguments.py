"""An argument of a queue is declared once: lists, checks and schemas follow."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, NamedTuple

import pytest

from broker_shim import argument_documents
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.openapi import openapi_of
from sparkstore.cli.command_line import main
from sparkstore.core.queue_arguments import ARGUMENTS, QueueArguments
from sparkstore.declared_arguments import AT_ANY_TIME, Argument, declared_arguments
from tests.support.checkout import CHECKOUT


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


TOY = """
    toy_ms: Annotated[
        int | None, Argument("how long a toy lasts, in ms", "0.8", 1, 9)
    ] = None
"""
PROGRAM = """
import sys
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("sparkstore.core.queue_arguments", {path!r})
sys.modules[spec.name] = module = module_from_spec(spec)
exec(compile({text!r}, {path!r}, "exec"), vars(module))

import json
from broker_shim import argument_documents
from broker_shim.listener_1_0.management.entities import ATTRIBUTES, EntityKind
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.openapi import openapi_of
from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest

try:
    module.check_arguments("q", {{"toy_ms": 0}})
except InvalidRequest as reason:
    refusal = str(reason)
schemas = openapi_of(ENDPOINTS, "1")["components"]["schemas"]
page = open({page!r}).read()
print(json.dumps({{
    "refusal": refusal,
    "OpenAPI": schemas["QueueCreation"]["properties"]["arguments"]["properties"]["toy_ms"],
    "document": [row for row in argument_documents.page(page).splitlines() if "toy_ms" in row],
    "settings": [line for line in argument_documents.comment(99) if "toy_ms" in line],
    "$management": "toy_ms" in ATTRIBUTES[EntityKind.QUEUE],
}}))
try:
    main(["queue", "create", "--help"])
except SystemExit:
    pass
"""


@pytest.mark.slow
def test_an_argument_that_is_declared_in_one_file_is_checked_listed_and_described() -> None:
    source = CHECKOUT / "sparkstore" / "core" / "queue_arguments.py"
    place = "    duplicate_window_ms: Annotated["
    text = source.read_text().replace(place, TOY + place)
    page = str(CHECKOUT / argument_documents.PAGE)
    program = PROGRAM.format(path=str(source), text=text, page=page)
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=False, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers, _, shown = done.stdout.partition("\n")
    toy = "how long a toy lasts, in ms"
    listed = f"{toy} (an integer from 1)"
    bounds = {"type": ["integer", "null"], "minimum": 1, "maximum": 9}
    assert json.loads(answers) == {
        "refusal": "queue 'q': toy_ms is 0: say an integer from 1 to 9",
        "OpenAPI": {**bounds, "description": toy},
        "document": [f"| `toy_ms` | {listed} | {AT_ANY_TIME} | 0.8 |"],
        "settings": [f"# {'toy_ms':24}{listed}"],
        "$management": True,
    }
    assert f"toy_ms: {listed}" in " ".join(shown.split())
