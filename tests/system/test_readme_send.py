"""The README's first steps, followed: a broker, a program, and the answer on its first screen."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from tests.support.documents import blocks, section, text_of
from tests.support.system.processes import StartBroker

ROOT, URL = "/var/lib/queues", "amqp://127.0.0.1:5672"


@pytest.mark.system
def test_what_the_first_program_sends_is_received_and_stays_on_its_queue(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = text_of("README.md")
    serve, program = blocks(section(readme, "Send and receive"))
    answer = next(block for block in blocks(readme) if block.startswith("sparkstore sql"))
    assert ROOT in serve
    assert URL in program
    root = str(tmp_path / "queues")
    command, *arguments = shlex.split(serve.replace(ROOT, root))[1:]
    assert command == "serve"
    broker = start_broker(*arguments)
    exec(compile(program.replace(URL, broker.url), "README.md", "exec"), {})
    assert broker.terminate() == 0
    assert capsys.readouterr().out == "a dozen\n"
    question, _, *told = answer.splitlines()
    assert main([*shlex.split(question.replace(ROOT, root))[1:]]) == 0
    assert capsys.readouterr().out.splitlines() == told
    assert main(["queues", "--json", root]) == 0
    (queue,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (queue["queue"], queue["depth"], queue["acquired"]) == ("orders", 1, 0)
