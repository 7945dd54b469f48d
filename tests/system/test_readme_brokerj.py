"""The five steps of docs/broker-j.md, followed: their commands, their JSON, their question.

The attributes of the node are in docs/broker-j.md.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.documents import blocks, section, text_of
from tests.support.stores.services import short_folder
from tests.support.system import brokerj, qpid_server
from tests.support.system.processes import BrokerProcess
from tests.support.system.qpid_server import QpidServer

STEPS = section(text_of("docs/broker-j.md"), "Use it from Broker-J")
ROOT = "/var/lib/queues"
NODE = "broker_shim/brokerj/src/main/java/sparkstore/brokerj/node/SparkStoreVirtualHostNode.java"


def shell(command: str, home: Path) -> None:
    subprocess.run(
        ["sh", "-ec", command],
        cwd=CHECKOUT,
        env={**os.environ, "QPID_HOME": str(home)},
        check=True,
        stdin=subprocess.DEVNULL,
    )


def sparkstore(command: str) -> list[str]:
    """The arguments of a command line that calls `sparkstore`."""
    program, *arguments = shlex.split(command)
    assert program == "sparkstore"
    return arguments


def ask(question: str) -> str:
    call = "import sys; from sparkstore.cli.command_line import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", call, *sparkstore(question)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def served(command: str) -> BrokerProcess:
    """The service that the page starts."""
    name, *arguments = sparkstore(command)
    assert name == "serve"
    return BrokerProcess(*arguments)


def state_after_put(server: QpidServer, node: dict[str, str]) -> str:
    """Of the virtual host, after its node was created by HTTP, beside the first."""
    found = re.search(r"`PUT (/\S+/)queues`", STEPS)
    assert found is not None
    attributes = {**node, "name": "other", "defaultVirtualHostNode": "false"}
    server.ask("PUT", f"{found[1]}other", attributes)
    state = server.ask("GET", "/api/latest/virtualhost/other/other")["state"]
    return str(state)


@pytest.mark.spark
@pytest.mark.system
@pytest.mark.slow
def test_the_five_steps(brokerj_plugin: None, tmp_path: Path) -> None:
    build, install, serve, node, question = (block.strip() for block in blocks(STEPS))
    qpid_server.fetch()
    home = tmp_path / "qpid"
    (home / "lib" / "opt").mkdir(parents=True)
    shell(build, home)
    shell(install, home)
    with short_folder() as folder:
        root, other = str(folder / "queues"), str(folder / "other")
        assert all(ROOT in text for text in (serve, node, question))
        services = [served(serve.replace(ROOT, place)) for place in (root, other)]
        server = QpidServer(home, tmp_path / "work", [json.loads(node.replace(ROOT, root))])
        try:
            brokerj.run_client(server, "JmsClient", "send", "orders", 50)
            assert state_after_put(server, json.loads(node.replace(ROOT, other))) == "ACTIVE"
            answer = ask(question.replace(ROOT, root))
        finally:
            server.kill()
            for service in services:
                service.kill()
    assert re.search(r"\borders\b\W+25\b", answer), answer


def test_the_table_tells_every_attribute_with_its_variable_and_default() -> None:
    source = (CHECKOUT / NODE).read_text()
    defaults = dict(re.findall(r'Default\(name = "([\w.]+)"\)\s+String \w+ = "(.*?)";', source))
    attributes = set(re.findall(r'defaultValue = "\$\{([\w.]+)\}"', source))
    told: dict[str, str] = {}
    for row in re.findall(
        r"^\| (`.*?) \| (.*?) \| (.*?) \|", text_of("docs/broker-j.md"), re.MULTILINE
    ):
        names, variables, values = (cell.replace("`", "").split(", ") for cell in row)
        for name, variable, value in zip(names, variables, values, strict=True):
            getter = f"get{name[0].upper()}{name[1:]}()"
            assert getter in source
            told[variable] = "" if value == "none" else value
    assert attributes == set(defaults)
    assert told == defaults
