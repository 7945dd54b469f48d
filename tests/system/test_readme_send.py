"""The README's first steps, followed in a folder of a user: a broker, a program, its answer."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from tests.support.documents import blocks, section, text_of
from tests.support.roots.logs import until
from tests.support.system.processes import StartBroker

URL = "amqp://127.0.0.1:5672"


@pytest.mark.system
def test_what_the_first_program_sends_is_received_and_stays_on_its_queue(
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve, program, answer = blocks(section(text_of("README.md"), "Send and receive"))
    assert URL in program
    monkeypatch.chdir(tmp_path)
    command, *arguments = shlex.split(serve)[1:]
    assert command == "serve"
    broker = start_broker(*arguments)
    exec(compile(program.replace(URL, broker.url), "README.md", "exec"), {})
    assert capsys.readouterr().out == "a dozen\n"
    question, _, *told = answer.splitlines()

    def is_answered() -> bool:
        assert main([*shlex.split(question)[1:]]) == 0
        return capsys.readouterr().out.splitlines() == told

    until(is_answered)  # the README says that answers are some 200 ms behind
    assert broker.terminate() == 0
    assert main(["queues", "--json", "shop"]) == 0
    (queue,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (queue["queue"], queue["depth"], queue["acquired"]) == ("orders", 1, 0)
